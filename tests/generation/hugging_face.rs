//! Processors and samplers beside those of Hugging Face transformers: hugging_face.py writes what
//! is expected.

use serde_json::Value;

use super::logits::{history, log_probabilities, logits};

#[test]
fn what_is_left_is_what_transformers_leaves() {
    let cases: Vec<Value> = serde_json::from_str(include_str!("hugging_face.json")).unwrap();
    assert!(cases.len() > 100);
    for case in &cases {
        let size = case["size"].as_u64().unwrap() as usize;
        let number = case["number"].as_u64().unwrap() as u32;
        let options = case["options"].as_object().unwrap();
        let options: Vec<(&str, &str)> = options
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_str().unwrap()))
            .collect();
        let prompt_len = case["prompt_len"].as_u64().unwrap() as usize;
        let logits = logits(size, number, case["kind"].as_str().unwrap());
        let found = log_probabilities(&options, &logits, &history(size, number), prompt_len, None).unwrap();
        let kept = found
            .iter()
            .enumerate()
            .filter(|(_, logprob)| logprob.is_finite());
        let kept: Vec<u64> = kept.map(|(token, _)| token as u64).collect();
        assert_eq!(kept.len() as u64, case["kept"].as_u64().unwrap(), "{case}");
        let checksum = kept.iter().map(|token| token * token % 1_000_003).sum::<u64>() % 1_000_003;
        assert_eq!(checksum, case["checksum"].as_u64().unwrap(), "{case}");
        for probe in case["probes"].as_array().unwrap() {
            let (token, expected) = (probe[0].as_u64().unwrap(), probe[1].as_f64().unwrap());
            let found = f64::from(found[token as usize]);
            assert!(
                (found - expected).abs() < 4e-6,
                "{token}: {found} for {expected} in {case}"
            );
        }
    }
}
