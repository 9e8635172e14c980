"""References and cases of merge_attention_states."""
