"""Reports on exports: ``run_history`` (``--history``), ``run_status`` (``--status``), ``verify`` (``--verify``) with
``repair_commands`` (the commands that mend its problems)."""
