"""The three parts of the model, their loader and their sampling; torch lives here."""
