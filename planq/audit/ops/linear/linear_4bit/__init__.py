"""References and cases of linear_4bit."""
