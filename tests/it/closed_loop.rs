//! The closed-loop fixture: captured forms on one side, an independent oracle on the other.

use std::path::PathBuf;
use std::sync::LazyLock;

use forestctl::archive::{Group, Ingested};
use forestctl::ingest;
use forestctl::select::{PolicyName, SelectSettings, Selection, select};
use safetensors::SafeTensors;
use serde_json::Value;

/// Both policies by name.
pub const POLICIES: [PolicyName; 2] = [PolicyName::ReturnedHistory, PolicyName::AllCaptured];

fn seed(path: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("testdata/closed-loop/seed1").join(path)
}

/// The captured forms.
const FORMS: [&str; 3] = ["staged-v2", "staged-v3", "gym-store"];

/// One captured form, ingested.
pub fn ingested(form: &str) -> Ingested {
    static READ: LazyLock<[Ingested; 3]> =
        LazyLock::new(|| FORMS.map(|form| ingest::read(&[seed(form)]).unwrap()));
    let form = FORMS.iter().position(|name| *name == form).unwrap();
    assert!(READ[form].quarantine.is_empty(), "{:?}", READ[form].quarantine);
    READ[form].clone()
}

/// Groups of one captured form.
pub fn groups(form: &str) -> Vec<Group> {
    ingested(form).groups
}

/// The selection of `policy` over `groups`.
pub fn selected(groups: &[Group], policy: PolicyName) -> Selection {
    select(groups, policy.policy(), &SelectSettings::default())
}

/// What the oracle expects of a policy.
pub fn expected(policy: PolicyName) -> Value {
    let text = std::fs::read_to_string(seed("expected/expected.json")).unwrap();
    let mut value: Value = serde_json::from_str(&text).unwrap();
    value["policies"][policy.policy().name()].take()
}

/// The oracle's rows of a policy.
pub struct Tensors(Vec<u8>);

impl Tensors {
    /// Reads `rows_POLICY.safetensors`.
    pub fn read(policy: PolicyName) -> Self {
        let name = format!("expected/rows_{}.safetensors", policy.policy().name());
        Self(std::fs::read(seed(&name)).unwrap())
    }

    /// Ids of the rows, in the order of the tensors.
    pub fn row_ids(&self) -> Vec<String> {
        let (_, metadata) = SafeTensors::read_metadata(&self.0).unwrap();
        serde_json::from_str(&metadata.metadata().as_ref().unwrap()["row_ids"]).unwrap()
    }

    /// A tensor's raw little-endian entries of `N` bytes.
    pub fn raw<const N: usize>(&self, name: &str) -> Vec<[u8; N]> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        let (entries, rest) = tensors.tensor(name).unwrap().data().as_chunks::<N>();
        assert!(rest.is_empty());
        entries.to_vec()
    }

    /// Names of all tensors.
    pub fn names(&self) -> Vec<String> {
        let tensors = SafeTensors::deserialize(&self.0).unwrap();
        tensors.names().into_iter().map(|name| name.to_string()).collect()
    }
}

/// Strings of a JSON array.
pub fn strings(value: &Value) -> Vec<&str> {
    value.as_array().unwrap().iter().map(|v| v.as_str().unwrap()).collect()
}
