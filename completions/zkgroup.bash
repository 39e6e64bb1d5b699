_zkgroup_completion() {
    local IFS=$'\n' line="${COMP_LINE:0:COMP_POINT}" separator
    local word="${line##*[[:space:]]}"
    local rest="$word"
    # Offer the names of files only where zkgroup says so.
    COMPREPLY=( $( env _TYPER_COMPLETE_ARGS="$line" _ZKGROUP_COMPLETE=complete_bash "$1" 2>/dev/null ) ) &&
        compopt +o default
    for separator in : =; do
        [[ "$COMP_WORDBREAKS" == *"$separator"* ]] && rest="${rest##*"$separator"}"
    done
    COMPREPLY=( "${COMPREPLY[@]#"${word%"$rest"}"}" )
    return 0
}

complete -o default -F _zkgroup_completion zkgroup
