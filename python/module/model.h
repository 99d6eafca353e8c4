// A model of the library in Python: its blocks with real memory, for a loop of the user's own.
#pragma once
#include <optional>
#include <string>

#include "models/config.h"
#include "python/module/graph.h"

namespace spillway::python {

/// Every function takes a turn of its own (turn.h), and wants the GIL.
class Model {
 public:
  /// A preset, a Hugging Face folder, org/name of the local cache, or a run (its last checkpoint). `from_scratch`: new weights of `seed`,
  /// which a preset and a folder without weights have anyway.
  Model(const std::string& name, DType dtype, u64 seed, bool from_scratch, Device device);

  Device device() const;
  /// All of it. Gradients are let go of; tensors of parameters and optimizers that were made before are of no use any more, and say so.
  void move(Device to);

  /// The mean over counted targets, f64, recorded. tokens[B, T]; targets[B, T], by default the next token of each; of images [N, C, H, W]
  /// and their classes [N].
  Array loss(const nb::object& input, const nb::object& targets, bool training);
  /// Of one position, the last by default: [B, V], not recorded.
  Array logits(const nb::object& input, std::optional<i64> position);

  i64 parameters() const { return static_cast<i64>(weights_->model.parameters.size()); }
  Array parameter(i64 id);
  Array parameter(const std::string& name);
  std::vector<std::string> names() const;
  void zero_grad();

  /// Copies values in, or (`share`) lies in the array's own memory from now on.
  void load(const std::string& name, const nb::object& array, bool share);
  void freeze(const std::string& name, bool frozen);
  void save(const std::string& folder) const;
  std::string config_json() const;
  std::string describe() const;

 private:
  // In host memory.
  MicroBatch batch_of(const nb::object& input) const;
  void set_targets(MicroBatch& batch, const nb::object& targets) const;
  // These three are called in a turn.
  void move_now(Device to);
  Array parameter_now(u32 id);
  std::unique_ptr<Weights> copied_to_host() const;  // of a model on a GPU

  std::string name_;
  models::ModelConfig config_;
  DType dtype_;
  RandomKey random_;
  std::shared_ptr<Weights> weights_;
  // What changes: looked at in a turn.
  Device device_;
  i64 samples_ = 0;  // that training has seen: keys dropout
};

void bind_model(nb::module_& module);
void bind_optimizers(nb::module_& module);
void bind_training(nb::module_& module);
void bind_commands(nb::module_& module);

}  // namespace spillway::python
