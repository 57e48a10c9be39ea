"""What Streamlit serves: the entry point and its configuration."""
