package main

import "regexp"

// documentID is the identifier of a document in itself.
const documentID = "SPDXRef-DOCUMENT"

// unknown is SPDX's value for a field without a claim.
const unknown = "NOASSERTION"

// spdxDocument has the fields of SPDX 2.3 that are used here.
type spdxDocument struct {
	Version     string `json:"spdxVersion"`
	DataLicense string `json:"dataLicense"`
	ID          string `json:"SPDXID"`
	Name        string `json:"name"`
	Namespace   string `json:"documentNamespace"`
	Creation    struct {
		Created  string   `json:"created"`
		Creators []string `json:"creators"`
	} `json:"creationInfo"`
	Packages      []spdxPackage      `json:"packages"`
	Relationships []spdxRelationship `json:"relationships"`

	known map[string]bool // by ID
}

type spdxPackage struct {
	ID               string          `json:"SPDXID"`
	Name             string          `json:"name"`
	Version          string          `json:"versionInfo"`
	FileName         string          `json:"packageFileName,omitempty"`
	Supplier         string          `json:"supplier"`
	DownloadLocation string          `json:"downloadLocation"`
	FilesAnalyzed    bool            `json:"filesAnalyzed"`
	Checksums        []spdxChecksum  `json:"checksums,omitempty"`
	SourceInfo       string          `json:"sourceInfo,omitempty"`
	LicenseConcluded string          `json:"licenseConcluded"`
	LicenseDeclared  string          `json:"licenseDeclared"`
	Copyright        string          `json:"copyrightText"`
	References       []spdxReference `json:"externalRefs"`
	Purpose          string          `json:"primaryPackagePurpose"`
}

type spdxChecksum struct {
	Algorithm string `json:"algorithm"`
	Value     string `json:"checksumValue"`
}

type spdxReference struct {
	Category string `json:"referenceCategory"`
	Type     string `json:"referenceType"`
	Locator  string `json:"referenceLocator"`
}

type spdxRelationship struct {
	From string `json:"spdxElementId"`
	Type string `json:"relationshipType"`
	To   string `json:"relatedSpdxElement"`
}

// purl is a package URL, by which scanners find vulnerabilities.
func purl(locator string) spdxReference {
	return spdxReference{Category: "PACKAGE-MANAGER", Type: "purl", Locator: locator}
}

// notInID matches what an SPDX identifier may not contain.
var notInID = regexp.MustCompile(`[^A-Za-z0-9.-]+`)

// add adds a package once, and returns its identifier. Empty fields become unknown.
func (d *spdxDocument) add(p spdxPackage) (id string) {
	p.ID = "SPDXRef-" + p.Purpose + "-" + notInID.ReplaceAllString(p.Name+"-"+p.Version, "-")
	p.Supplier, p.DownloadLocation, p.LicenseConcluded, p.Copyright = unknown, unknown, unknown, unknown
	if p.LicenseDeclared == "" {
		p.LicenseDeclared = unknown
	}
	if !d.known[p.ID] {
		d.known[p.ID] = true
		d.Packages = append(d.Packages, p)
	}
	return p.ID
}

func (d *spdxDocument) relate(from, kind, to string) {
	d.Relationships = append(d.Relationships, spdxRelationship{From: from, Type: kind, To: to})
}
