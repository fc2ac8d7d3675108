// Writes signatures of an identity as cosign publishes them, right ones and wrong ones, the trusted roots for them,
// and what the library of Sigstore says about each: `go run . MANIFEST DIRECTORY`.
//
// All is from a day in the past, and all certificates and keys have expired since.
package main

import (
	"bytes"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log"
	"math/big"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/cyberphone/json-canonicalization/go/src/webpki.org/jsoncanonicalizer"
	"github.com/digitorus/timestamp"
	"github.com/go-openapi/runtime"
	ct "github.com/google/certificate-transparency-go"
	cttls "github.com/google/certificate-transparency-go/tls"
	ctx509util "github.com/google/certificate-transparency-go/x509util"
	"github.com/secure-systems-lab/go-securesystemslib/dsse"
	protobundle "github.com/sigstore/protobuf-specs/gen/pb-go/bundle/v1"
	v1 "github.com/sigstore/protobuf-specs/gen/pb-go/common/v1"
	protodsse "github.com/sigstore/protobuf-specs/gen/pb-go/dsse"
	protorekor "github.com/sigstore/protobuf-specs/gen/pb-go/rekor/v1"
	prototrust "github.com/sigstore/protobuf-specs/gen/pb-go/trustroot/v1"
	rekortilespb "github.com/sigstore/rekor-tiles/v2/pkg/generated/protobuf"
	rekornote "github.com/sigstore/rekor-tiles/v2/pkg/note"
	"github.com/sigstore/rekor/pkg/generated/models"
	"github.com/sigstore/rekor/pkg/pki"
	"github.com/sigstore/rekor/pkg/types"
	dsseEntry "github.com/sigstore/rekor/pkg/types/dsse"
	"github.com/sigstore/rekor/pkg/types/hashedrekord"
	"github.com/sigstore/rekor/pkg/util"
	"github.com/sigstore/sigstore-go/pkg/bundle"
	"github.com/sigstore/sigstore-go/pkg/root"
	"github.com/sigstore/sigstore-go/pkg/verify"
	"github.com/sigstore/sigstore/pkg/signature"
	f_log "github.com/transparency-dev/formats/log"
	"github.com/transparency-dev/merkle/rfc6962"
	"golang.org/x/mod/sumdb/note"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/types/known/timestamppb"
)

const (
	issuer    = "https://token.actions.githubusercontent.com"
	workflow  = "https://github.com/example/charts/.github/workflows/release.yml@refs/heads/main"
	predicate = "https://sigstore.dev/cosign/sign/v1"
	statement = "application/vnd.in-toto+json"
	origin    = "rekor.example.com"
)

var (
	day    = time.Date(2025, 3, 1, 12, 0, 0, 0, time.UTC)
	signed = day.Add(2 * time.Minute)
	first  = day.AddDate(0, -2, 0)
	last   = day.AddDate(0, 2, 0)
	// The library compares the certificates of a timestamp with the time at which this program runs.
	never = day.AddDate(100, 0, 0)
)

func must[T any](value T, err error) T {
	if err != nil {
		log.Fatalf("%+v", err)
	}
	return value
}

func newKey() *ecdsa.PrivateKey { return must(ecdsa.GenerateKey(elliptic.P256(), rand.Reader)) }

func spki(key *ecdsa.PrivateKey) []byte { return must(x509.MarshalPKIXPublicKey(key.Public())) }

func keyID(key *ecdsa.PrivateKey) []byte {
	sum := sha256.Sum256(spki(key))
	return sum[:]
}

func sign(key *ecdsa.PrivateKey, data []byte) []byte {
	sum := sha256.Sum256(data)
	return must(ecdsa.SignASN1(rand.Reader, key, sum[:]))
}

// world has the authorities and the logs of one trusted root.
type world struct {
	fulcio, tsa                     *x509.Certificate
	fulcioRoot, tsaRoot             *x509.Certificate
	fulcioKey, tsaKey, rekor, ctlog *ecdsa.PrivateKey
}

func certificate(template, parent *x509.Certificate, public any, key *ecdsa.PrivateKey) *x509.Certificate {
	return must(x509.ParseCertificate(must(x509.CreateCertificate(rand.Reader, template, parent, public, key))))
}

func authority(name string, until time.Time, parent *x509.Certificate, parentKey *ecdsa.PrivateKey, usage []x509.ExtKeyUsage) (*x509.Certificate, *ecdsa.PrivateKey) {
	key := newKey()
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: name, Organization: []string{"example.com"}},
		NotBefore:             first,
		NotAfter:              until,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		ExtKeyUsage:           usage,
		BasicConstraintsValid: true,
		IsCA:                  true,
	}
	if parent == nil {
		parent, parentKey = template, key
	}
	return certificate(template, parent, key.Public(), parentKey), key
}

func newWorld() *world {
	w := &world{rekor: newKey(), ctlog: newKey(), tsaKey: newKey()}
	rootCert, rootKey := authority("fulcio", last, nil, nil, nil)
	w.fulcioRoot = rootCert
	w.fulcio, w.fulcioKey = authority("fulcio-intermediate", last, rootCert, rootKey, []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning})
	tsaCert, tsaRootKey := authority("tsa", never, nil, nil, nil)
	w.tsaRoot = tsaCert
	usage := must(asn1.Marshal([]asn1.ObjectIdentifier{{1, 3, 6, 1, 5, 5, 7, 3, 8}}))
	w.tsa = certificate(&x509.Certificate{
		SerialNumber:    big.NewInt(1),
		Subject:         pkix.Name{CommonName: "tsa-leaf"},
		NotBefore:       first,
		NotAfter:        never,
		KeyUsage:        x509.KeyUsageDigitalSignature,
		ExtraExtensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 37}, Critical: true, Value: usage}},
	}, tsaCert, w.tsaKey.Public(), tsaRootKey)
	return w
}

func (w *world) trustedRoot() []byte {
	window := &v1.TimeRange{Start: timestamppb.New(first), End: timestamppb.New(last)}
	chain := func(certs ...*x509.Certificate) *v1.X509CertificateChain {
		out := &v1.X509CertificateChain{}
		for _, cert := range certs {
			out.Certificates = append(out.Certificates, &v1.X509Certificate{RawBytes: cert.Raw})
		}
		return out
	}
	instance := func(url string, key *ecdsa.PrivateKey) *prototrust.TransparencyLogInstance {
		return &prototrust.TransparencyLogInstance{
			BaseUrl:       url,
			HashAlgorithm: v1.HashAlgorithm_SHA2_256,
			PublicKey: &v1.PublicKey{
				RawBytes:   spki(key),
				KeyDetails: v1.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256,
				ValidFor:   window,
			},
			LogId: &v1.LogId{KeyId: keyID(key)},
		}
	}
	authority := func(url string, certs *v1.X509CertificateChain) *prototrust.CertificateAuthority {
		return &prototrust.CertificateAuthority{
			Subject:   &v1.DistinguishedName{Organization: "example.com", CommonName: "example"},
			Uri:       url,
			CertChain: certs,
			ValidFor:  window,
		}
	}
	return must(protojson.Marshal(&prototrust.TrustedRoot{
		MediaType:              "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
		Tlogs:                  []*prototrust.TransparencyLogInstance{instance("https://"+origin, w.rekor)},
		Ctlogs:                 []*prototrust.TransparencyLogInstance{instance("https://ct.example.com", w.ctlog)},
		CertificateAuthorities: []*prototrust.CertificateAuthority{authority("https://fulcio.example.com", chain(w.fulcio, w.fulcioRoot))},
		TimestampAuthorities:   []*prototrust.CertificateAuthority{authority("https://tsa.example.com", chain(w.tsa, w.tsaRoot))},
	}))
}

// wish says what is different from a right signature.
type wish struct {
	subject    string             // another identity; a mail address if it has no scheme
	issuer     string             // another issuer
	noSCT      bool               // a certificate without a timestamp of the log of certificates
	ctlog      *ecdsa.PrivateKey  // another log of certificates
	usage      []x509.ExtKeyUsage // another purpose of the certificate
	fulcio     *world             // another authority
	integrated time.Time          // when the log says it was made
	manifest   string             // another digest
	predicate  string             // another statement
	foreign    bool               // the entry of the log is about another signature
	noEntry    bool               // no entry of the log, and a timestamp instead
	noPromise  bool               // the entry has no promise, so that nothing proves the time
	noProof    bool               // the entry has no proof
	rekor      *ecdsa.PrivateKey  // another log
	damage     bool               // the signature is of something else
	noIssuer   bool               // no issuer in the certificate
	noSubject  bool
}

func (w *world) leaf(wish wish) (*x509.Certificate, *ecdsa.PrivateKey) {
	key := newKey()
	authority := w
	if wish.fulcio != nil {
		authority = wish.fulcio
	}
	usage := []x509.ExtKeyUsage{x509.ExtKeyUsageCodeSigning}
	if wish.usage != nil {
		usage = wish.usage
	}
	name, subject := issuer, workflow
	if wish.issuer != "" {
		name = wish.issuer
	}
	if wish.subject != "" {
		subject = wish.subject
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(7),
		NotBefore:    day,
		NotAfter:     day.Add(10 * time.Minute),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  usage,
	}
	if !wish.noIssuer {
		template.ExtraExtensions = []pkix.Extension{
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 1}, Value: []byte(name)},
			{Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 1, 8}, Value: must(asn1.MarshalWithParams(name, "utf8"))},
		}
	}
	if wish.noSubject {
		template.DNSNames = []string{"example.com"}
	} else if strings.Contains(subject, "://") {
		template.URIs = []*url.URL{must(url.Parse(subject))}
	} else {
		template.EmailAddresses = []string{subject}
	}
	before := certificate(template, authority.fulcio, key.Public(), authority.fulcioKey)
	if wish.noSCT {
		return before, key
	}
	ctlog := w.ctlog
	if wish.ctlog != nil {
		ctlog = wish.ctlog
	}
	sct := ct.SignedCertificateTimestamp{SCTVersion: ct.V1, Timestamp: uint64(day.UnixMilli())}
	copy(sct.LogID.KeyID[:], keyID(ctlog))
	entry := ct.LogEntry{Leaf: ct.MerkleTreeLeaf{
		Version:  ct.V1,
		LeafType: ct.TimestampedEntryLeafType,
		TimestampedEntry: &ct.TimestampedEntry{
			Timestamp: sct.Timestamp,
			EntryType: ct.PrecertLogEntryType,
			PrecertEntry: &ct.PreCert{
				IssuerKeyHash:  sha256.Sum256(authority.fulcio.RawSubjectPublicKeyInfo),
				TBSCertificate: before.RawTBSCertificate,
			},
		},
	}}
	sct.Signature = ct.DigitallySigned{
		Algorithm: cttls.SignatureAndHashAlgorithm{Hash: cttls.SHA256, Signature: cttls.ECDSA},
		Signature: sign(ctlog, must(ct.SerializeSCTSignatureInput(sct, entry))),
	}
	list := must(ctx509util.MarshalSCTsIntoSCTList([]*ct.SignedCertificateTimestamp{&sct}))
	value := must(asn1.Marshal(must(cttls.Marshal(*list))))
	template.ExtraExtensions = append(template.ExtraExtensions, pkix.Extension{
		Id: asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 11129, 2, 4, 2}, Value: value,
	})
	return certificate(template, authority.fulcio, key.Public(), authority.fulcioKey), key
}

func asPEM(certs ...*x509.Certificate) string {
	var out bytes.Buffer
	for _, cert := range certs {
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: cert.Raw})
	}
	return out.String()
}

// entry returns what the first version of Rekor has about a signature.
func (w *world) entry(kind string, props types.ArtifactProperties, wish wish) *protorekor.TransparencyLogEntry {
	ctx := context.Background()
	version := "0.0.1"
	proposed := must(types.NewProposedEntry(ctx, kind, version, props))
	impl := must(types.CreateVersionedEntry(proposed))
	canonical := must(types.CanonicalizeEntry(ctx, impl))
	again := must(models.UnmarshalProposedEntry(bytes.NewReader(canonical), runtime.JSONConsumer()))
	body := must(must(types.UnmarshalEntry(again)).Canonicalize(ctx))

	rekor := w.rekor
	if wish.rekor != nil {
		rekor = wish.rekor
	}
	at := signed
	if !wish.integrated.IsZero() {
		at = wish.integrated
	}
	payload := map[string]any{
		"body":           base64.StdEncoding.EncodeToString(body),
		"integratedTime": at.Unix(),
		"logIndex":       1001,
		"logID":          hex.EncodeToString(keyID(rekor)),
	}
	set := sign(rekor, must(jsoncanonicalizer.Transform(must(json.Marshal(payload)))))

	neighbour := rfc6962.DefaultHasher.HashLeaf([]byte("another entry"))
	rootHash := rfc6962.DefaultHasher.HashChildren(neighbour, rfc6962.DefaultHasher.HashLeaf(body))
	signer := must(signature.LoadECDSASignerVerifier(rekor, crypto.SHA256))
	checkpoint := must(util.CreateAndSignCheckpoint(ctx, origin, 17, 2, rootHash, signer))
	out := &protorekor.TransparencyLogEntry{
		LogIndex:          1001,
		LogId:             &v1.LogId{KeyId: keyID(rekor)},
		KindVersion:       &protorekor.KindVersion{Kind: kind, Version: version},
		IntegratedTime:    at.Unix(),
		InclusionPromise:  &protorekor.InclusionPromise{SignedEntryTimestamp: set},
		CanonicalizedBody: body,
		InclusionProof: &protorekor.InclusionProof{
			LogIndex:   1,
			TreeSize:   2,
			RootHash:   rootHash,
			Hashes:     [][]byte{neighbour},
			Checkpoint: &protorekor.Checkpoint{Envelope: string(checkpoint)},
		},
	}
	if wish.noPromise {
		out.InclusionPromise = nil
	}
	if wish.noProof {
		out.InclusionProof = nil
	}
	return out
}

// entryV2 returns what the second version of Rekor has about an envelope.
func (w *world) entryV2(leaf *x509.Certificate, payload, sig []byte) *protorekor.TransparencyLogEntry {
	digest := sha256.Sum256(dsse.PAE(statement, payload))
	serialized := must(protojson.Marshal(&rekortilespb.Entry{
		ApiVersion: "0.0.2",
		Kind:       "hashedrekord",
		Spec: &rekortilespb.Spec{Spec: &rekortilespb.Spec_HashedRekordV002{HashedRekordV002: &rekortilespb.HashedRekordLogEntryV002{
			Data: &v1.HashOutput{Algorithm: v1.HashAlgorithm_SHA2_256, Digest: digest[:]},
			Signature: &rekortilespb.Signature{
				Content: sig,
				Verifier: &rekortilespb.Verifier{
					KeyDetails: v1.PublicKeyDetails_PKIX_ECDSA_P256_SHA_256,
					Verifier:   &rekortilespb.Verifier_X509Certificate{X509Certificate: &v1.X509Certificate{RawBytes: leaf.Raw}},
				},
			},
		}}},
	}))
	body := must(jsoncanonicalizer.Transform(serialized))
	rootHash := rfc6962.DefaultHasher.HashLeaf(body)
	signer := must(rekornote.NewNoteSigner(context.Background(), origin, must(signature.LoadECDSASignerVerifier(w.rekor, crypto.SHA256))))
	text := f_log.Checkpoint{Origin: origin, Size: 1, Hash: rootHash}.Marshal()
	checkpoint := must(note.Sign(&note.Note{Text: string(text)}, signer))
	return &protorekor.TransparencyLogEntry{
		LogId:             &v1.LogId{KeyId: keyID(w.rekor)},
		KindVersion:       &protorekor.KindVersion{Kind: "hashedrekord", Version: "0.0.2"},
		CanonicalizedBody: body,
		InclusionProof: &protorekor.InclusionProof{
			TreeSize:   1,
			RootHash:   rootHash,
			Checkpoint: &protorekor.Checkpoint{Envelope: string(checkpoint)},
		},
	}
}

func (w *world) timestamp(sig []byte, at time.Time) *protobundle.TimestampVerificationData {
	query := must(timestamp.CreateRequest(bytes.NewReader(sig), &timestamp.RequestOptions{Hash: crypto.SHA256}))
	request := must(timestamp.ParseRequest(query))
	template := timestamp.Timestamp{
		HashAlgorithm: request.HashAlgorithm,
		HashedMessage: request.HashedMessage,
		Time:          at,
		Policy:        asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57264, 2},
	}
	response := must(template.CreateResponseWithOpts(w.tsa, w.tsaKey, crypto.SHA256))
	return &protobundle.TimestampVerificationData{Rfc3161Timestamps: []*v1.RFC3161SignedTimestamp{{SignedTimestamp: response}}}
}

func props(artifact, sig []byte, leaf *x509.Certificate) types.ArtifactProperties {
	return types.ArtifactProperties{
		ArtifactBytes:  artifact,
		SignatureBytes: sig,
		PublicKeyBytes: [][]byte{[]byte(asPEM(leaf))},
		PKIFormat:      string(pki.X509),
	}
}

// bundle signs a manifest as cosign 3 does; with `v2`, with the second version of Rekor.
func (w *world) bundle(manifest string, v2 bool, wish wish) *protobundle.Bundle {
	leaf, key := w.leaf(wish)
	kind := predicate
	if wish.predicate != "" {
		kind = wish.predicate
	}
	if wish.manifest != "" {
		manifest = wish.manifest
	}
	payload := []byte(fmt.Sprintf(`{"_type":"https://in-toto.io/Statement/v1","subject":[{"digest":{"sha256":"%s"}}],"predicateType":"%s","predicate":{}}`, manifest, kind))
	sig := sign(key, dsse.PAE(statement, payload))
	material := &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_Certificate{Certificate: &v1.X509Certificate{RawBytes: leaf.Raw}},
	}
	at := signed
	if !wish.integrated.IsZero() {
		at = wish.integrated
	}
	switch {
	case wish.noEntry:
		material.TimestampVerificationData = w.timestamp(sig, at)
	case v2:
		material.TlogEntries = []*protorekor.TransparencyLogEntry{w.entryV2(leaf, payload, sig)}
		if !wish.noPromise {
			material.TimestampVerificationData = w.timestamp(sig, at)
		}
	default:
		logged, loggedSig := payload, sig
		if wish.foreign {
			logged = []byte(strings.Replace(string(payload), manifest, strings.Repeat("0", 64), 1))
			loggedSig = sign(key, dsse.PAE(statement, logged))
		}
		envelope := must(json.Marshal(dsse.Envelope{
			PayloadType: statement,
			Payload:     base64.StdEncoding.EncodeToString(logged),
			Signatures:  []dsse.Signature{{Sig: base64.StdEncoding.EncodeToString(loggedSig)}},
		}))
		material.TlogEntries = []*protorekor.TransparencyLogEntry{w.entry(dsseEntry.KIND, props(envelope, loggedSig, leaf), wish)}
	}
	if wish.damage {
		sig = sign(key, payload)
	}
	return &protobundle.Bundle{
		MediaType:            "application/vnd.dev.sigstore.bundle.v0.3+json",
		VerificationMaterial: material,
		Content: &protobundle.Bundle_DsseEnvelope{DsseEnvelope: &protodsse.Envelope{
			Payload: payload, PayloadType: statement, Signatures: []*protodsse.Signature{{Sig: sig}},
		}},
	}
}

// text is what cosign 2 publishes.
type text struct {
	Payload     string `json:"payload"`
	Signature   string `json:"signature"`
	Certificate string `json:"certificate"`
	Chain       string `json:"chain"`
	Entry       string `json:"entry"`
}

// text signs a manifest as cosign 2 does, and returns it also as a bundle for the library.
func (w *world) text(manifest string, wish wish) (text, *protobundle.Bundle) {
	leaf, key := w.leaf(wish)
	if wish.manifest != "" {
		manifest = wish.manifest
	}
	payload := []byte(fmt.Sprintf(`{"critical":{"identity":{"docker-reference":"example.com/a/web"},"image":{"docker-manifest-digest":"sha256:%s"},"type":"cosign container image signature"},"optional":null}`, manifest))
	sig := sign(key, payload)
	logged, loggedSig := payload, sig
	if wish.foreign {
		logged = append([]byte(" "), payload...)
		loggedSig = sign(key, logged)
	}
	digest := sha256.Sum256(logged)
	properties := props(nil, loggedSig, leaf)
	properties.ArtifactHash = hex.EncodeToString(digest[:])
	entry := w.entry(hashedrekord.KIND, properties, wish)
	entry.InclusionProof = nil
	promise := entry.InclusionPromise.SignedEntryTimestamp
	out := text{
		Payload:     string(payload),
		Signature:   base64.StdEncoding.EncodeToString(sig),
		Certificate: asPEM(leaf),
		Chain:       asPEM(w.fulcio, w.fulcioRoot),
		Entry: string(must(json.Marshal(map[string]any{
			"SignedEntryTimestamp": promise,
			"Payload": map[string]any{
				"body":           base64.StdEncoding.EncodeToString(entry.CanonicalizedBody),
				"integratedTime": entry.IntegratedTime,
				"logIndex":       entry.LogIndex,
				"logID":          hex.EncodeToString(entry.LogId.KeyId),
			},
		}))),
	}
	own := sha256.Sum256(payload)
	material := &protobundle.VerificationMaterial{
		Content: &protobundle.VerificationMaterial_X509CertificateChain{X509CertificateChain: &v1.X509CertificateChain{
			Certificates: []*v1.X509Certificate{{RawBytes: leaf.Raw}},
		}},
		TlogEntries: []*protorekor.TransparencyLogEntry{entry},
	}
	if wish.noEntry {
		out.Entry = ""
		material.TlogEntries = nil
	}
	if wish.damage {
		sig = sign(key, []byte("something else"))
		out.Signature = base64.StdEncoding.EncodeToString(sig)
	}
	return out, &protobundle.Bundle{
		MediaType:            "application/vnd.dev.sigstore.bundle+json;version=0.1",
		VerificationMaterial: material,
		Content: &protobundle.Bundle_MessageSignature{MessageSignature: &v1.MessageSignature{
			MessageDigest: &v1.HashOutput{Algorithm: v1.HashAlgorithm_SHA2_256, Digest: own[:]},
			Signature:     sig,
		}},
	}
}

// judge returns what the library of Sigstore says: nothing if it accepts.
func judge(trusted []byte, signed *protobundle.Bundle, artifact verify.ArtifactPolicyOption) string {
	material, err := root.NewTrustedRootFromJSON(trusted)
	if err != nil {
		return err.Error()
	}
	entity, err := bundle.NewBundle(signed)
	if err != nil {
		return err.Error()
	}
	verifier, err := verify.NewVerifier(material, verify.WithSignedCertificateTimestamps(1),
		verify.WithTransparencyLog(1), verify.WithObserverTimestamps(1))
	if err != nil {
		return err.Error()
	}
	identity, err := verify.NewShortCertificateIdentity(issuer, "", workflow, "")
	if err != nil {
		return err.Error()
	}
	if _, err := verifier.Verify(entity, verify.NewPolicy(artifact, verify.WithCertificateIdentity(identity))); err != nil {
		return err.Error()
	}
	return ""
}

func main() {
	log.SetFlags(log.Lshortfile)
	manifest := sha256.Sum256(must(os.ReadFile(os.Args[1])))
	hexManifest, directory := hex.EncodeToString(manifest[:]), os.Args[2]
	write := func(name string, data []byte) {
		// protojson writes spaces at random.
		var compact bytes.Buffer
		if err := json.Compact(&compact, data); err != nil {
			log.Fatal(err)
		}
		path := filepath.Join(directory, name)
		_ = os.MkdirAll(filepath.Dir(path), 0o755)
		if err := os.WriteFile(path, append(compact.Bytes(), '\n'), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	own, other := newWorld(), newWorld()
	trusted := own.trustedRoot()
	write("trusted_root.json", trusted)
	write("other_root.json", other.trustedRoot())

	verdicts := map[string]string{}
	wishes := []struct {
		name string
		wish wish
	}{
		{"right", wish{}},
		{"mail", wish{subject: "release@example.com"}},
		{"other-subject", wish{subject: "https://github.com/example/charts/.github/workflows/release.yml@refs/heads/other"}},
		{"longer-subject", wish{subject: workflow + "-2"}},
		{"other-issuer", wish{issuer: "https://token.example.com"}},
		{"no-issuer", wish{noIssuer: true}},
		{"no-subject", wish{noSubject: true}},
		{"other-authority", wish{fulcio: other}},
		{"other-usage", wish{usage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}},
		{"no-sct", wish{noSCT: true}},
		{"other-ctlog", wish{ctlog: other.ctlog}},
		{"early", wish{integrated: day.Add(-time.Second)}},
		{"late", wish{integrated: day.Add(11 * time.Minute)}},
		{"foreign-entry", wish{foreign: true}},
		{"no-entry", wish{noEntry: true}},
		{"no-promise", wish{noPromise: true}},
		{"no-proof", wish{noProof: true}},
		{"other-log", wish{rekor: other.rekor}},
		{"other-manifest", wish{manifest: strings.Repeat("0", 64)}},
		{"damaged", wish{damage: true}},
		{"attestation", wish{predicate: "https://slsa.dev/provenance/v1"}},
	}
	for _, one := range wishes {
		signed := own.bundle(hexManifest, false, one.wish)
		name := "bundle/" + one.name
		verdicts[name] = judge(trusted, signed, verify.WithArtifactDigest("sha256", manifest[:]))
		write(name+".json", must(protojson.Marshal(signed)))
	}
	for _, one := range wishes {
		switch one.name {
		case "right", "mail", "late", "no-promise", "other-manifest", "damaged":
			signed := own.bundle(hexManifest, true, one.wish)
			name := "bundle-2/" + one.name
			verdicts[name] = judge(trusted, signed, verify.WithArtifactDigest("sha256", manifest[:]))
			write(name+".json", must(protojson.Marshal(signed)))
		}
	}
	for _, one := range wishes {
		switch one.name {
		case "right", "other-subject", "other-issuer", "other-authority", "no-sct", "early", "late", "foreign-entry", "no-entry", "other-log", "other-manifest", "damaged":
			published, signed := own.text(hexManifest, one.wish)
			name := "text/" + one.name
			verdicts[name] = judge(trusted, signed, verify.WithArtifact(strings.NewReader(published.Payload)))
			write(name+".json", must(json.Marshal(published)))
		}
	}
	out := must(json.MarshalIndent(verdicts, "", "  "))
	if err := os.WriteFile(filepath.Join(directory, "verdicts.json"), append(out, '\n'), 0o644); err != nil {
		log.Fatal(err)
	}
}
