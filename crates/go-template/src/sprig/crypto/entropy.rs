//! The system's random number generator behind the two traits that the key generators require.

use std::convert::Infallible;

use rsa::rand_core::{CryptoRng, Error, RngCore};
use sha2::{Digest, Sha256};

use crate::error::FuncError;

/// Random numbers from the system.
///
/// The trait cannot report failures, so a seed is fetched first: if the system fails later, which
/// it does not after a first success, numbers are derived from the seed.
pub(super) struct Entropy {
    seed: [u8; 32],
    counter: u64,
}

impl Entropy {
    pub(super) fn new() -> Result<Self, FuncError> {
        let mut seed = [0; 32];
        crate::sprig::random::fill(&mut seed)?;
        Ok(Self { seed, counter: 0 })
    }
}

impl RngCore for Entropy {
    fn next_u32(&mut self) -> u32 {
        let mut bytes = [0; 4];
        self.fill_bytes(&mut bytes);
        u32::from_le_bytes(bytes)
    }

    fn next_u64(&mut self) -> u64 {
        let mut bytes = [0; 8];
        self.fill_bytes(&mut bytes);
        u64::from_le_bytes(bytes)
    }

    fn fill_bytes(&mut self, out: &mut [u8]) {
        if getrandom::fill(out).is_ok() {
            return;
        }
        for chunk in out.chunks_mut(32) {
            self.counter += 1;
            let block = Sha256::new()
                .chain_update(self.seed)
                .chain_update(self.counter.to_le_bytes());
            for (slot, byte) in chunk.iter_mut().zip(block.finalize()) {
                *slot = byte;
            }
        }
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        self.fill_bytes(out);
        Ok(())
    }
}

impl CryptoRng for Entropy {}

impl rand_core::TryRng for Entropy {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        Ok(RngCore::next_u32(self))
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        Ok(RngCore::next_u64(self))
    }

    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Infallible> {
        RngCore::fill_bytes(self, out);
        Ok(())
    }
}

impl rand_core::TryCryptoRng for Entropy {}
