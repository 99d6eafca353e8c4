// Defines the Python class Model: a model of the library with its blocks in real memory, for a training loop that the user writes.
#pragma once
#include <optional>
#include <string>

#include "models/config.h"
#include "python/module/graph.h"
#include "python/module/tokenizer.h"
#include "trainer/checkpoints/model_source.h"
#include "trainer/text/sampling.h"

namespace spillway::python {

/// The Python class Model. Every function takes its own turn, the right to compute (turn.h), and must be called with the GIL held.
class Model {
 public:
  /// Loads the model that `name` names: a preset, a Hugging Face folder, org/name in the local cache, or a run (its last checkpoint). With
  /// `from_scratch` the weights are newly drawn from `seed`; a preset and a folder without weights always get new weights.
  Model(const std::string& name, DType dtype, u64 seed, bool from_scratch, Device device);

  Device device() const;
  /// Moves the whole model to another device. Gradients are dropped. Tensors of parameters
  /// and optimizers that were made before become unusable; using them raises an error.
  void move(Device to);

  /// Returns the mean loss over the targets that contribute to the loss, f64, recorded for backward(). The input is
  /// tokens[B, T] with targets[B, T], by default the next token of each; or images [N, C, H, W] with their classes [N].
  Array loss(const nb::object& input, const nb::object& targets, bool training);
  /// Returns the logits of all positions, [B, T, V] or [N, classes], in the model's type, recorded for backward().
  Array forward(const nb::object& input, bool training);
  /// Returns the logits [B, V] of one position, by default the last. They are not recorded for backward().
  Array logits(const nb::object& input, std::optional<i64> position);

  /// Continues each sequence of tokens[B, T] by up to `most` tokens, and returns all of them, int64 [B, T + n]. A sequence ends after one
  /// of the tokens `ends` (by default the model's end tokens) and is filled up with `padding`. Sequence b samples with the seed plus b.
  Array generate(const nb::object& input, i64 most, trainer::Sampling sampling, const std::optional<std::vector<i64>>& ends,
                 std::optional<i64> padding);
  /// Returns the tokenizer of the model's folder. A model that was made here without a tokenizer has one token per byte.
  Tokenizer tokenizer() const;

  i64 parameters() const { return static_cast<i64>(weights_->model.parameters.size()); }
  Array parameter(i64 id);
  Array parameter(const std::string& name);
  std::vector<std::string> names() const;
  void zero_grad();

  /// Copies the array's values into the parameter. With `share`, the parameter uses the array's own memory from now on.
  void load(const std::string& name, const nb::object& array, bool share);
  void freeze(const std::string& name, bool frozen);
  void save(const std::string& folder) const;
  std::string config_json() const;
  std::string describe() const;

 private:
  // Returns the micro-batch of `input`, in host memory.
  MicroBatch batch_of(const nb::object& input) const;
  void set_targets(MicroBatch& batch, const nb::object& targets) const;
  // Runs the model and returns its output, the sum of losses or the logits, with the graph on which it is recorded, if any.
  std::pair<Variable, std::shared_ptr<Graph>> run(nn::Context& context, MicroBatch& batch, bool training);
  // move_now() and the two functions after it must be called while this thread has the turn (turn.h).
  void move_now(Device to);
  Array parameter_now(u32 id);
  std::unique_ptr<Weights> copied_to_host() const;  // returns a copy, in host memory, of a model that lies on a GPU

  trainer::ModelSource source_;
  models::ModelConfig config_;
  DType dtype_;
  RandomKey random_;
  std::shared_ptr<Weights> weights_;
  // These fields are accessed only by the thread that has the turn (turn.h).
  Device device_;
  i64 samples_ = 0;  // the number of samples seen in training so far, on which dropout masks depend
};

void bind_model(nb::module_& module);
void bind_optimizers(nb::module_& module);
void bind_training(nb::module_& module);
void bind_commands(nb::module_& module);

}  // namespace spillway::python
