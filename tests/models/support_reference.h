// Reads the reference runs in tests/data (PyTorch and transformers; see
// tests/data/language-models.md) and runs models in eager mode to compare them with.
#pragma once
#include <string>
#include <vector>

#include "data/safetensors/safetensors.h"
#include "models/config.h"
#include "nn/eager.h"

namespace spillway::test {

/// Reads reference.safetensors (f32) or reference_f64.safetensors in a model's folder in tests/data.
class Reference {
 public:
  Reference(const std::string& model, DType dtype);
  std::vector<double> values(const std::string& name) const;
  double value(const std::string& name) const { return values(name).at(0); }
  Tensor ids(const std::string& name, i64 first_row = 0, i64 rows = -1) const;  // returns the ids of `rows` rows as i32, from first_row on
  bool has(const std::string& name) const { return reader_.find(name) != nullptr; }
  /// Returns tokens, targets (labels shifted by one, like `targets` in the fixtures) and positions of rows [first_row, first_row + rows).
  MicroBatch batch(const std::string& ids_name, const std::string& labels_name, i64 first_row = 0, i64 rows = -1) const;

 private:
  data::SafetensorsReader reader_;
};

/// Holds a model in memory, with the weights of its folder.
struct Eager {
  Eager(const std::string& model, DType dtype);
  /// Makes a model of another configuration, with the folder's weights.
  Eager(const std::string& model, const models::ModelConfig& of, DType dtype);
  /// Returns the sum of the token losses. The gradients in `weights` are those of that sum times loss_factor.
  double backward(const MicroBatch& batch, double loss_factor);
  std::vector<double> logits(const MicroBatch& batch, i64 position);
  std::vector<double> gradient(const std::string& parameter) const;

  models::ModelConfig config;
  nn::Sequential model;
  nn::EagerParameters weights;
};

std::vector<double> as_doubles(const Tensor& t);

/// Returns the largest |got - want| - (absolute + relative |want|), which is at most 0
/// if every element is within tolerance. Returns infinity if an element is not finite.
double worst_excess(const std::vector<double>& got, const std::vector<double>& want, double absolute, double relative);

}  // namespace spillway::test
