"""References and cases of LLM.int8 and its parts."""
