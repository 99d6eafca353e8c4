// The reference runs of tests/data (PyTorch and transformers; see tests/data/language-models.md), and a model beside them in the eager way.
#pragma once
#include <string>
#include <vector>

#include "data/safetensors.h"
#include "models/config.h"
#include "nn/eager.h"

namespace spillway::test {

/// reference.safetensors (f32) or reference_f64.safetensors of a folder under tests/data.
class Reference {
 public:
  Reference(const std::string& model, DType dtype);
  std::vector<double> values(const std::string& name) const;
  double value(const std::string& name) const { return values(name).at(0); }
  Tensor ids(const std::string& name, i64 first_row = 0, i64 rows = -1) const;  // i32, those rows
  bool has(const std::string& name) const { return reader_.find(name) != nullptr; }
  /// Tokens, targets (labels shifted by one, as the fixtures' own `targets`) and positions of rows [first_row, first_row + rows).
  MicroBatch batch(const std::string& ids_name, const std::string& labels_name, i64 first_row = 0, i64 rows = -1) const;

 private:
  data::SafetensorsReader reader_;
};

/// The model of a folder with its weights, in memory.
struct Eager {
  Eager(const std::string& model, DType dtype);
  /// Of another configuration, with the folder's weights.
  Eager(const std::string& model, const models::ModelConfig& of, DType dtype);
  /// Sum of the token losses; gradients go to `weights` as those of loss_factor times the sum.
  double backward(const MicroBatch& batch, double loss_factor);
  std::vector<double> logits(const MicroBatch& batch, i64 position);
  std::vector<double> gradient(const std::string& parameter) const;

  models::ModelConfig config;
  nn::Sequential model;
  nn::EagerParameters weights;
};

std::vector<double> as_doubles(const Tensor& t);

/// Largest |got - want| - (absolute + relative |want|); at most 0 when every element is within tolerance. Not finite: infinity.
double worst_excess(const std::vector<double>& got, const std::vector<double>& want, double absolute, double relative);

}  // namespace spillway::test
