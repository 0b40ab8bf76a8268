"""Several processes that train one model: who they are, what each computes, and what becomes of one that is lost."""
