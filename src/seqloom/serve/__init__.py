"""`seqloom serve`: runs over HTTP. Needs `pip install 'seqloom[serve]'`."""
