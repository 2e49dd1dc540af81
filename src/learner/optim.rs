//! AdamW on the main weights, after clipping the gradient by its global norm.

use std::path::Path;

use forestctl::error::{Error, Result};
use forestctl::step::model::{WeightFiles, Weights};
use forestctl::step::settings::AdamW;
use tch::{Kind, Tensor};

use super::parameters::Parameter;
use super::shim;
use super::tensor::{Torch, failed, from_view, is_finite};

/// Stem of the files that hold the optimizer's state.
pub const OPTIMIZER: &str = "optimizer";

/// Added to the norm that a gradient is divided by.
const CLIP_EPSILON: f64 = 1e-6;

/// Moments of every parameter, in the order of the parameters.
#[derive(Debug, Default)]
pub struct OptimizerState {
    /// Updates made.
    pub step: u64,
    moments: Vec<(Tensor, Tensor)>,
}

impl OptimizerState {
    /// The state before the first update.
    pub fn fresh(parameters: &[Parameter]) -> Result<Self> {
        let zeros = |p: &Parameter| Ok((p.main.f_zeros_like()?, p.main.f_zeros_like()?));
        let moments = parameters.iter().map(zeros).collect::<Torch<_>>().map_err(failed)?;
        Ok(Self { step: 0, moments })
    }

    /// The state that a checkpoint after `step` updates holds, and with it the float32 originals
    /// of bfloat16 weights.
    pub fn resume(dir: &Path, step: u64, parameters: &mut [Parameter]) -> Result<Self> {
        let files = WeightFiles::open(dir, OPTIMIZER)?;
        let weights = files.read()?;
        let mut moments = Vec::with_capacity(parameters.len());
        for parameter in parameters {
            let moment = |part: &str| {
                let name = format!("{part}.{}", parameter.name);
                load(&weights, &name, &parameter.main)
            };
            moments.push((moment("exp_avg")?, moment("exp_avg_sq")?));
            let main = format!("main.{}", parameter.name);
            if weights.has(&main) {
                parameter.main.f_copy_(&load(&weights, &main, &parameter.main)?).map_err(failed)?;
                parameter.publish().map_err(failed)?;
            }
        }
        Ok(Self { step, moments })
    }

    /// Tensors to save, by name.
    pub fn tensors(&self, parameters: &[Parameter]) -> Vec<(String, Tensor)> {
        let mut tensors = Vec::with_capacity(3 * parameters.len());
        for (parameter, (first, second)) in parameters.iter().zip(&self.moments) {
            tensors.push((format!("exp_avg.{}", parameter.name), first.shallow_clone()));
            tensors.push((format!("exp_avg_sq.{}", parameter.name), second.shallow_clone()));
            if parameter.leaf.kind() != parameter.main.kind() {
                tensors.push((format!("main.{}", parameter.name), parameter.main.shallow_clone()));
            }
        }
        tensors.sort_by(|a, b| a.0.cmp(&b.0));
        tensors
    }

    /// One update with gradients multiplied by `coefficient`. Decay is decoupled and on every
    /// parameter; both moments are bias corrected.
    ///
    /// # Errors
    /// When a weight or a moment overflows.
    pub fn update(
        &mut self,
        parameters: &mut [Parameter],
        settings: &AdamW,
        coefficient: f64,
    ) -> Result<()> {
        self.step += 1;
        let _guard = tch::no_grad_guard();
        let fused = parameters.first().is_some_and(|parameter| parameter.main.device().is_cuda());
        if fused {
            self.advance_all(parameters, settings, coefficient).map_err(failed)?;
        }
        for (parameter, moments) in parameters.iter_mut().zip(&mut self.moments) {
            if !fused {
                advance(parameter, moments, settings, coefficient, self.step).map_err(failed)?;
            }
            parameter.publish().map_err(failed)?;
            for (what, tensor) in
                [("weight", &parameter.leaf), ("moment", &moments.0), ("moment", &moments.1)]
            {
                if !is_finite(tensor).map_err(failed)? {
                    return Err(Error::format(format!(
                        "the update leaves a {what} of {} that is not finite; nothing was written",
                        parameter.name
                    ))
                    .help("Use a smaller --lr or --weight-decay, or a wider --dtype"));
                }
            }
        }
        Ok(())
    }
}

impl OptimizerState {
    /// The update of all parameters by one fused kernel. Scales the gradients in place.
    fn advance_all(
        &self,
        parameters: &mut [Parameter],
        settings: &AdamW,
        coefficient: f64,
    ) -> Torch<()> {
        for parameter in parameters.iter_mut() {
            match &mut parameter.grad {
                Some(grad) => drop(grad.f_mul_scalar_(coefficient)?),
                none => *none = Some(parameter.main.f_zeros_like()?),
            }
        }
        let Some(first) = parameters.first() else { return Ok(()) };
        let step =
            Tensor::f_from_slice(&[self.step as f32])?.f_squeeze()?.f_to(first.main.device())?;
        let update = shim::Update {
            parameters: parameters.iter().map(|p| &p.main).collect(),
            gradients: parameters.iter().filter_map(|p| p.grad.as_ref()).collect(),
            first: self.moments.iter().map(|(first, _)| first).collect(),
            second: self.moments.iter().map(|(_, second)| second).collect(),
            steps: vec![&step; parameters.len()],
        };
        let AdamW { lr, betas, eps, weight_decay, .. } = *settings;
        shim::adamw(&update, lr, betas, weight_decay, eps)
    }
}

fn advance(
    parameter: &mut Parameter,
    (first, second): &mut (Tensor, Tensor),
    settings: &AdamW,
    coefficient: f64,
    step: u64,
) -> Torch<()> {
    let (beta1, beta2) = settings.betas;
    let grad = match &parameter.grad {
        Some(grad) => grad.f_mul_scalar(coefficient)?,
        None => parameter.main.f_zeros_like()?,
    };
    *first = first.f_mul_scalar(beta1)?.f_add(&grad.f_mul_scalar(1.0 - beta1)?)?;
    *second = second.f_mul_scalar(beta2)?.f_add(&grad.f_square()?.f_mul_scalar(1.0 - beta2)?)?;
    let step = step as f64;
    let root = second.f_div_scalar(1.0 - beta2.powf(step))?.f_sqrt()?.f_add_scalar(settings.eps)?;
    let change = first.f_div(&root)?.f_mul_scalar(settings.lr / (1.0 - beta1.powf(step)))?;
    let decayed = parameter.main.f_mul_scalar(1.0 - settings.lr * settings.weight_decay)?;
    parameter.main.f_copy_(&decayed.f_sub(&change)?)
}

/// The global norm of all gradients, summed in float64.
pub fn grad_norm(parameters: &[Parameter]) -> Result<f64> {
    let square = |p: &Parameter| match &p.grad {
        Some(grad) => grad
            .f_to_dtype(Kind::Double, false, false)?
            .f_square()?
            .f_sum(None)?
            .f_double_value(&[]),
        None => Ok(0.0),
    };
    let squares = parameters.iter().map(square).collect::<Torch<Vec<f64>>>().map_err(failed)?;
    Ok(squares.iter().sum::<f64>().sqrt())
}

/// What gradients of norm `norm` are multiplied by.
pub fn clip_coefficient(norm: f64, max_norm: f64) -> f64 {
    (max_norm / (norm + CLIP_EPSILON)).min(1.0)
}

fn load(weights: &Weights, name: &str, like: &Tensor) -> Result<Tensor> {
    let shape: Vec<usize> = like.size().iter().map(|&n| n as usize).collect();
    let stored = from_view(name, weights.get(name, &shape)?)?;
    stored.f_to_dtype(like.kind(), false, false).and_then(|t| t.f_to(like.device())).map_err(failed)
}
