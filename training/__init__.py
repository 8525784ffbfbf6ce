"""The recipe of the embedded voice; see README.md here."""
