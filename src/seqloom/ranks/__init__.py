"""Several processes that train one model, or predict with it: who they are, what each computes, and what becomes of one that is lost."""
