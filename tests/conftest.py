"""Its presence puts this folder on the import path, so that tests of all folders can share modules that lie here."""
