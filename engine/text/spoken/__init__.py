"""What is spoken for what was written: markup, numbers and pronunciations; pure, torch-free."""
