"""CTranslate2 used directly, on the model that seqloom exported: workers of one thread each."""

from __future__ import annotations

from pathlib import Path

import ctranslate2

from peers.worker import Job, Turns, job

LONGEST = 2.0, 10  # an output has at most so many tokens per source token, and so many more


def predict_in_turns(job: Job, turns: Turns) -> None:
    folder = Path(job.bundle) / f"ctranslate2-{job.variant}"
    translator = ctranslate2.Translator(str(folder), device="cpu", inter_threads=job.threads, intra_threads=1)

    def answer(window: list[list[str]]) -> int:
        """The window at once, so that every worker has some of it; single sentences one by one."""
        asked = window if job.batch == 1 else [[line for batch in window for line in batch]]
        return sum(len(tokens) for lines in asked for tokens in said([line.split(" ") for line in lines]))

    def said(sources: list[list[str]]) -> list[list[str]]:
        ratio, extra = LONGEST
        results = translator.translate_batch(
            sources,
            beam_size=job.beam,
            length_penalty=1.0,
            min_decoding_length=job.length or 0,
            max_decoding_length=job.length or int(ratio * (max(map(len, sources)) + 1)) + extra,
            max_batch_size=job.batch,
            batch_type="examples",
        )
        return [result.hypotheses[0] for result in results]

    turns.serve(answer, job)


if __name__ == "__main__":
    predict_in_turns(job(), Turns("ctranslate2"))
