// Reads a dashboard as Grafana's SDK does, with every field known and of its type.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

func main() {
	data, err := os.ReadFile(os.Args[1])
	if err == nil {
		err = new(dashboard.Dashboard).UnmarshalJSONStrict(data)
	}
	var found cog.BuildErrors
	if errors.As(err, &found) && len(found) == 0 {
		err = nil // the SDK returns a list of errors also where there are none
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
