"""Several processes that train one model or predict with it: who they are, what each does, and what if one is lost."""
