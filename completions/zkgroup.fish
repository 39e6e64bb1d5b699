function __zkgroup_completion
    set --global __zkgroup_offered (env _ZKGROUP_COMPLETE=complete_fish _TYPER_COMPLETE_ARGS=(commandline --current-process --cut-at-cursor | string collect) zkgroup 2>/dev/null)
end

complete --command zkgroup --no-files --condition __zkgroup_completion --arguments '(string join \n -- $__zkgroup_offered)'
