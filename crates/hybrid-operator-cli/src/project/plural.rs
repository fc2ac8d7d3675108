//! The plural name of a kind whose definition does not say it. Pure.
//!
//! The words and endings are those of [flect](https://github.com/gobuffalo/flect) 1.0, of which kubebuilder and
//! operator-sdk take plurals. It forms no usable plural of acronyms that end with `s` (`dns` becomes `dnsDNSes`);
//! here they follow the rules of other words.

/// Words with their plural, and with another plural that some have. The first that a kind ends with counts.
const WORDS: &str = "\
    graffiti/graffiti shoe/shoes formula/formulas/formulae agenda/agendas pretorium/pretoriums \
    cookie/cookies movie/movies move/moves hive/hives chive/chives thief/thieves hoof/hoofs/hooves \
    dwarf/dwarfs/dwarves rice/rice news/news money/money jeans/jeans information/information \
    equipment/equipment tomato/tomatoes potato/potatoes buffalo/buffaloes/buffalos topaz/topazes \
    ache/aches pause/pauses muse/muses misuse/misuses house/houses fuse/fuses excuse/excuses \
    cruse/cruses clause/clauses cause/causes abuse/abuses vedalia/vedalias basis/bases base/bases \
    testis/testes thesis/theses oasis/oases genesis/geneses ellipsis/ellipses crisis/crises \
    helix/helices/helixes radix/radices/radixes appendix/appendices/appendixes \
    vortex/vortices/vortexes vertex/vertices/vertexes latex/latices/latexes index/indices/indexes \
    codex/codices/codexes apex/apices/apexes uva/uvae praecava/praecavae postcava/postcavae \
    larva/larvae vita/vitae minutia/minutiae differentia/differentiae vertebra/vertebrae \
    alumna/alumnae genus/genera corpus/corpora/corpuses syllabus/syllabi radius/radii/radiuses \
    octopus/octupuses/octopi nucleus/nuclei/nucleuses locus/loci/locuses focus/foci/focuses \
    coccus/cocci cactus/cacti/cactuses bacillus/bacilli alumnus/alumni/alumnuses quota/quotas \
    curriculum/curriculums/curricula symposium/symposia/symposiums auditorium/auditoria/auditoriums \
    aquarium/aquaria/aquariums stadium/stadiums/stadia medium/media media/media taxon/taxa \
    phenomenon/phenomena noumenon/noumena mitochondrion/mitochondria/mitochondrions \
    lexicon/lexica/lexicons ganglion/ganglia/ganglions criterion/criteria bureau/bureaus/bureaux \
    fabliau/fabliaux adieu/adieux/adieus person/people woman/women tooth/teeth mouse/mice \
    human/humans man/men goose/geese foot/feet child/children you/you tuna/tuna/tunas \
    trout/trout/trouts swine/swine/swines species/species shrimp/shrimp/shrimps sheep/sheep \
    series/series salmon/salmon/salmons police/police moose/moose fish/fish/fishes deer/deer \
    chassis/chassis blues/blues bison/bison beef/beef/beefs aircraft/aircraft";

/// Words that count only where they are the whole kind.
const WHOLE: &str = "\
    ox/oxen louse/lice die/dice axis/axes alias/aliases use/uses toe/toes ssh/sshs eia/eias \
    tia/tias";

/// Endings with those of the plural, for kinds that end with none of the words. The first that fits counts.
const ENDINGS: &str = "\
    tive/tives eaf/eaves oaf/oaves afe/aves arf/arves rfe/rves rf/rves lf/lves fe/ves ay/ays ey/eys \
    oy/oys quy/quies uy/uys y/ies eau/eaux bula/bulae dula/bulae lula/bulae nula/bulae vula/bulae \
    hedron/hedra ium/ia seum/seums eum/ea oum/oa stracum/straca dum/da elum/ela ilum/ila olum/ola \
    ulum/ula llum/lla ylum/yla imum/ima ernum/erna gnum/gna brum/bra crum/cra terum/tera serum/sera \
    trum/tra antum/anta atum/ata entum/enta etum/eta itum/ita otum/ota utum/uta ctum/cta ovum/ova \
    trix/trices iasis/iases mesis/meses kinesis/kineses resis/reses gnosis/gnoses opsis/opses \
    ysis/yses ouse/ouses lause/lauses us/uses ch/ches io/ios sh/shes ss/sses ez/ezzes iz/izzes \
    tz/tzes zz/zzes ano/anos lo/los to/tos oo/oos o/oes x/xes";

/// Returns the plural of a kind in lower case, as kubebuilder forms it.
pub(crate) fn plural(kind: &str) -> String {
    let kind = kind.to_ascii_lowercase();
    let words = || pairs(WORDS).chain(pairs(WHOLE));
    if let Some((_, many)) = words().find(|(one, _)| *one == kind) {
        return first(many).to_owned();
    }
    if words().any(|(_, many)| many.split('/').any(|many| many == kind)) {
        return kind;
    }
    for (one, many) in pairs(WORDS).chain(pairs(ENDINGS)) {
        let many = first(many);
        if kind.ends_with(many) {
            return kind;
        }
        if let Some(stem) = kind.strip_suffix(one) {
            return format!("{stem}{many}");
        }
    }
    if kind.ends_with('s') {
        kind
    } else {
        kind + "s"
    }
}

/// Returns the words of a list, each with its plurals.
fn pairs(list: &'static str) -> impl Iterator<Item = (&'static str, &'static str)> {
    list.split_whitespace()
        .filter_map(|pair| pair.split_once('/'))
}

/// Returns the first of the plurals of a word.
fn first(many: &str) -> &str {
    many.split('/').next().unwrap_or(many)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The output of flect 1.0.3 for the kinds in lower case.
    #[test]
    fn plurals_are_those_of_kubebuilder() {
        let kinds = "
            Aircraft/aircraft Album/albums Analysis/analyses Axis/axes Basis/bases Batch/batches
            Belief/beliefs Buffalo/buffaloes Bureau/bureaus Cache/caches Canvas/canvas
            Child/children Colloquy/colloquies Cookie/cookies Criterion/criteria
            CustomMedia/custommedia Data/data Database/databases Datum/data Equipment/equipment
            Fish/fish FishTank/fishtanks Focus/foci Gateway/gateways Human/humans Index/indices
            Indexes/indexes Ingress/ingresses Knife/knives Leaf/leaves Leaves/leaves
            Mailbox/mailboxes Matrix/matrices Media/media Medium/media Memcached/memcacheds
            Mouse/mice Movie/movies MyData/mydata News/news OperatorPolicy/operatorpolicies
            Ox/oxen People/people Person/people Photo/photos Plateau/plateaux Podinfo/podinfoes
            Policy/policies Postgres/postgres Proof/proofs Proxy/proxies Quiz/quizzes
            Quota/quotas Radio/radios Radius/radii Redis/redis Reindeer/reindeer SSH/sshs
            Safe/saves Schema/schemas Series/series Serum/sera Sheep/sheep Shelf/shelves
            Shoe/shoes Species/species Stadium/stadiums Status/statuses Synopsis/synopses
            Toe/toes UUID/uuids Users/users Vertex/vertices Volcano/volcanos Waltz/waltzes
            Woman/women";
        assert_eq!(pairs(kinds).count(), 76);
        for (kind, wanted) in pairs(kinds) {
            assert_eq!(plural(kind), wanted, "{kind}");
        }
    }

    #[test]
    fn acronyms_that_end_with_s_have_a_plural_in_lower_case() {
        for (kind, wanted) in [("DNS", "dns"), ("HTTPS", "https"), ("BSS", "bsses")] {
            assert_eq!(plural(kind), wanted, "{kind}");
        }
    }
}
