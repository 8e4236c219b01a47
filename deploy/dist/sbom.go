package main

import (
	"crypto/sha256"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// license is this project's own. The licenses of modules are left out: a program does not
// contain them, and nobody could rely on a guess.
const license = "Apache-2.0"

// describeProgram writes sbom/PROGRAM-VERSION-linux-ARCHITECTURE.spdx.json, from the build
// information in the program.
func (r release) describeProgram(architecture, program string) error {
	title := fmt.Sprintf("%s-%s-linux-%s", program, r.version, architecture)
	d := r.newDocument(title)
	id, err := d.addProgram(r, architecture, program)
	if err != nil {
		return err
	}
	d.relate(documentID, "DESCRIBES", id)
	return r.writeDocument(title, d)
}

// describeImage writes sbom/NAME-image-VERSION-linux-ARCHITECTURE.spdx.json.
func (r release) describeImage(kind imageKind, architecture string, image v1.Image) error {
	digest, err := image.Digest()
	if err != nil {
		return err
	}
	title := fmt.Sprintf("%s-image-%s-linux-%s", kind.name, r.version, architecture)
	d := r.newDocument(title)
	id := d.add(spdxPackage{
		Name: imagePrefix + "/" + kind.name, Version: r.version, Purpose: "CONTAINER",
		Checksums:       []spdxChecksum{{Algorithm: "SHA256", Value: digest.Hex}},
		LicenseDeclared: license,
		References:      []spdxReference{purl(fmt.Sprintf("pkg:oci/%s@%s?arch=%s", kind.name, strings.ReplaceAll(digest.String(), ":", "%3A"), architecture))},
	})
	d.relate(documentID, "DESCRIBES", id)
	for _, program := range kind.programs {
		contained, err := d.addProgram(r, architecture, program)
		if err != nil {
			return err
		}
		d.relate(id, "CONTAINS", contained)
	}
	return r.writeDocument(title, d)
}

// addProgram adds a program and the modules it is linked from.
func (d *spdxDocument) addProgram(r release, architecture, program string) (id string, err error) {
	file := r.program(architecture, program)
	info, err := buildinfo.ReadFile(file)
	if err != nil {
		return "", err
	}
	if err := checkPlatform(info, architecture); err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	sum, err := sumOf(file)
	if err != nil {
		return "", err
	}
	id = d.add(spdxPackage{
		Name: program, Version: r.version, FileName: program, Purpose: "APPLICATION",
		Checksums:       []spdxChecksum{{Algorithm: "SHA256", Value: sum}},
		LicenseDeclared: license,
		SourceInfo:      fmt.Sprintf("package %s at commit %s, built with %s for linux/%s", info.Path, r.revision, info.GoVersion, architecture),
		References:      []spdxReference{purl("pkg:golang/" + info.Main.Path + "@" + r.version)},
	})
	standard := strings.TrimPrefix(info.GoVersion, "go")
	d.relate(id, "STATIC_LINK", d.add(spdxPackage{Name: "stdlib", Version: standard, Purpose: "LIBRARY", References: []spdxReference{purl("pkg:golang/stdlib@" + standard)}}))
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		d.relate(id, "STATIC_LINK", d.add(spdxPackage{
			Name: module.Path, Version: module.Version, Purpose: "LIBRARY",
			SourceInfo: "go.sum: " + module.Sum,
			References: []spdxReference{purl("pkg:golang/" + module.Path + "@" + module.Version)},
		}))
	}
	return id, nil
}

// checkPlatform returns an error for a program that was built for another platform.
func checkPlatform(info *debug.BuildInfo, architecture string) error {
	for _, want := range []debug.BuildSetting{{Key: "GOOS", Value: "linux"}, {Key: "GOARCH", Value: architecture}, {Key: "CGO_ENABLED", Value: "0"}} {
		if !slices.Contains(info.Settings, want) {
			return fmt.Errorf("was not built with %s=%s", want.Key, want.Value)
		}
	}
	return nil
}

func (r release) newDocument(title string) *spdxDocument {
	d := &spdxDocument{
		Version: "SPDX-2.3", DataLicense: "CC0-1.0", ID: documentID, Name: title, known: map[string]bool{},
	}
	d.Creation.Created, d.Creation.Creators = r.date.Format(time.RFC3339), []string{"Tool: edgehub-dist"}
	return d
}

// writeDocument gives the document a namespace made from its content: SPDX demands a unique one,
// and the same release must have the same.
func (r release) writeDocument(title string, d *spdxDocument) error {
	content, err := json.Marshal(d)
	if err != nil {
		return err
	}
	d.Namespace = fmt.Sprintf("%s/sbom/%s-%x", home, title, sha256.Sum256(content))
	if content, err = json.MarshalIndent(d, "", "  "); err != nil {
		return err
	}
	return write(filepath.Join(r.out, "sbom", title+".spdx.json"), append(content, '\n'))
}
