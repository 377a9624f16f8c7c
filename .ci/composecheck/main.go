// Composecheck loads a Compose file as Docker Compose does: interpolation, merges, references among
// services, once for each set of profiles that it is given.
//
//	composecheck FILE [PROFILE,PROFILE ...]
package main

import (
	"context"
	"fmt"
	"os"
	"strings"

	"github.com/compose-spec/compose-go/v2/cli"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "composecheck FILE [PROFILE,PROFILE ...]")
		os.Exit(2)
	}
	for _, profiles := range append([]string{""}, os.Args[2:]...) {
		if err := check(os.Args[1], strings.FieldsFunc(profiles, func(r rune) bool { return r == ',' })); err != nil {
			fmt.Fprintf(os.Stderr, "%s, profiles [%s]: %v\n", os.Args[1], profiles, err)
			os.Exit(1)
		}
	}
}

func check(file string, profiles []string) error {
	options, err := cli.NewProjectOptions([]string{file}, cli.WithInterpolation(true), cli.WithProfiles(profiles))
	if err != nil {
		return err
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		return err
	}
	fmt.Printf("%s: %d services in profiles [%s]\n", file, len(project.Services), strings.Join(profiles, ","))
	return nil
}
