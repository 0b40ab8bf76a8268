"""The parts models are made of: cells, scores, attention, front ends, heads. Each is one equation and its laws."""
