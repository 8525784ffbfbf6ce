"""The English front end: text to phonemes, durations and text rows; pure Python and NumPy."""
