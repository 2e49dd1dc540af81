//! Weights as tensors: loaded by name and shape, trained in place.

use forestctl::error::{Error, Result};
use forestctl::step::model::weights::Weights;
use tch::{Device, Kind, Tensor};

use super::tensor::{Torch, failed, from_view, is_finite, precise};

/// One weight tensor.
#[derive(Debug)]
pub struct Parameter {
    /// Hugging Face name.
    pub name: String,
    /// What the forward pass reads, in the number format of the run.
    pub leaf: Tensor,
    /// What the optimizer updates: the leaf itself, or its float32 original when the run is in
    /// bfloat16.
    pub main: Tensor,
    /// Summed gradients, once there are any, in the format of `main`.
    pub grad: Option<Tensor>,
}

impl Parameter {
    /// Moves what the last backward pass left into the sum. Done after every row, as a bfloat16
    /// sum over many rows would lose bits.
    pub fn collect(&mut self) -> Torch<()> {
        let fresh = self.leaf.f_grad()?;
        if !fresh.defined() {
            return Ok(());
        }
        let _guard = tch::no_grad_guard();
        match &mut self.grad {
            Some(sum) => {
                let _ = sum.f_add_(&fresh)?;
            }
            none => *none = Some(fresh.f_detach()?.f_to_dtype(self.main.f_kind()?, false, true)?),
        }
        let _ = fresh.f_detach()?.f_zero_()?;
        Ok(())
    }

    /// Carries an update of `main` over to the leaf.
    pub fn publish(&mut self) -> Torch<()> {
        if self.leaf.f_kind()? != self.main.f_kind()? {
            let _guard = tch::no_grad_guard();
            self.leaf.f_copy_(&self.main)?;
        }
        Ok(())
    }
}

/// Takes weights by name, and knows in the end which were never asked for.
pub struct Loader<'a> {
    /// Where weights come from; without, they are drawn.
    weights: Option<&'a Weights<'a>>,
    kind: Kind,
    device: Device,
    trainable: bool,
    /// Loaded so far, in the order asked for.
    pub parameters: Vec<Parameter>,
}

impl<'a> Loader<'a> {
    /// Loads from `weights` into tensors of `kind` on `device`.
    pub fn new(
        weights: Option<&'a Weights<'a>>,
        kind: Kind,
        device: Device,
        trainable: bool,
    ) -> Self {
        Self { weights, kind, device, trainable, parameters: Vec::new() }
    }

    /// Loads one weight, all of whose numbers must be finite; the result shares its storage with the parameter.
    pub fn take(&mut self, name: String, shape: &[usize]) -> Result<Tensor> {
        let stored = match self.weights {
            Some(weights) => from_view(&name, weights.get(&name, shape)?)?,
            None => drawn(&name, shape, self.device).map_err(failed)?,
        };
        let parameter = self.parameter(name, &stored).map_err(failed)?;
        if !is_finite(&parameter.leaf).map_err(failed)? {
            return Err(Error::format(format!(
                "{} holds numbers that are not finite in {:?}",
                parameter.name, self.kind
            ))
            .help("Take an earlier checkpoint, or a wider --dtype"));
        }
        let shared = parameter.leaf.shallow_clone();
        self.parameters.push(parameter);
        Ok(shared)
    }

    fn parameter(&self, name: String, stored: &Tensor) -> Torch<Parameter> {
        let to = |kind| stored.f_to_dtype(kind, false, false)?.f_to(self.device);
        let leaf = to(self.kind)?;
        let main = match precise(self.kind) == self.kind || !self.trainable {
            true => leaf.f_detach()?,
            false => to(precise(self.kind))?,
        };
        let leaf = leaf.f_set_requires_grad(self.trainable)?;
        Ok(Parameter { name, leaf, main, grad: None })
    }

    /// All parameters by name. Weights that the architecture has no place for are an error: the
    /// model is another one than `config.json` says.
    pub fn finish(mut self, ignored: &[&str]) -> Result<Vec<Parameter>> {
        self.parameters.sort_by(|a, b| a.name.cmp(&b.name));
        let known = |name: &str| {
            self.parameters.binary_search_by(|p| p.name.as_str().cmp(name)).is_ok()
                || ignored.contains(&name)
                || name.ends_with(".rotary_emb.inv_freq")
        };
        let names = self.weights.iter().flat_map(|weights| weights.names());
        let strangers: Vec<_> = names.filter(|name| !known(name)).collect();
        if let Some(first) = strangers.first() {
            return Err(Error::format(format!(
                "the weights hold {first}{}, which a model of this config.json has no place for",
                match strangers.len() {
                    1 => String::new(),
                    n => format!(" and {} more", n - 1),
                }
            ))
            .help("config.json and weights must belong to the same model"));
        }
        Ok(self.parameters)
    }
}

/// A weight as models are first made: norms of 1, biases of 0, and small normal numbers.
fn drawn(name: &str, shape: &[usize], device: Device) -> Torch<Tensor> {
    let shape: Vec<i64> = shape.iter().map(|&n| n as i64).collect();
    let options = (Kind::Float, device);
    match name {
        name if name.ends_with("norm.weight") => Tensor::f_ones(&shape, options),
        name if name.ends_with(".bias") => Tensor::f_zeros(&shape, options),
        _ => Tensor::f_randn(&shape, options)?.f_mul_scalar(0.02),
    }
}
