"""The places where cells are judged: this process, processes prepared for a question, ranks, and a pool of workers."""
