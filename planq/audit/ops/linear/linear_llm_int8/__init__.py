"""References and cases of linear_llm_int8."""
