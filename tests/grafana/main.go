// Reads a dashboard as Grafana's SDK does, with every field known and of its type.
package main

import (
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = new(dashboard.Dashboard).UnmarshalJSONStrict(data)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
