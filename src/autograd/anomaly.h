// Finds the op that produced the first number that is not finite, as PyTorch's detect_anomaly does.
//   AnomalyGuard guard;
//   run(model, context).backward();      throws Error(numbers) that names the op
// The guard reads every result of an op, forward and backward, on the CPU. It waits for results on
// a GPU and copies them. It changes no number.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace spillway::autograd {

/// While a guard lives, every op that runs forward or backward on the thread that created the guard must produce finite numbers. Otherwise
/// Error(numbers) reports on several lines which op failed, in forward or backward, in or after which layer, the shape of its result, the
/// position of the first number in the result that is not finite, and the range of each input. A NaN is always reported. An infinity is not
/// reported if the op read infinities from an input that is no parameter, such as a mask, or if the op announced it
/// (Recorder::expect_infinities). Layers are named only if the guard also lived during forward. If guards are nested, the innermost guard
/// is used. Each guard belongs to one thread.
class AnomalyGuard {
 public:
  struct Options {
    std::string where;     // text that begins the report, such as "step 7, block 2"
    bool backward = true;  // false: gradients are not checked, because a loss scale can legitimately cause infinities
  };
  AnomalyGuard() : AnomalyGuard(Options()) {}
  explicit AnomalyGuard(Options options);
  ~AnomalyGuard();
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

  /// Returns the thread's innermost guard; null if there is none.
  static AnomalyGuard* current();
  /// Records that `memory` holds the parameter of this name. An op that reads the memory
  /// counts as part of the layer whose name is the parameter's name without ".weight".
  void name(const Storage& memory, const std::string& parameter) { names_[&memory] = parameter; }

  /// Checks an op's result. If the result is not finite, throws the report. Otherwise returns the
  /// layer that the op is in (" in L") or comes after (" after L"); empty if no layer has been named.
  std::string check_output(const char* op, const Tensor& output, std::span<const Variable> inputs, bool infinities);
  /// The tensors of an op's backward that check_gradients() reports on: its results, which are gradients
  /// by input; the gradient of the op's output; and the tensors saved by forward that backward used.
  struct Made {
    const char* op;
    const std::string& layer;  // the op's layer, as check_output() returned it
    std::vector<std::pair<size_t, Tensor>> gradients;
    const Tensor& gradient;
    std::vector<Tensor> saved;
  };
  bool checks_backward() const { return options_.backward; }
  /// Throws an Error(numbers) with the report if one of the gradients is not finite.
  void check_gradients(const Made& made) const;

 private:
  const Options options_;
  AnomalyGuard* const outer_;
  std::map<const Storage*, std::string> names_;
  std::string last_layer_;
};

}  // namespace spillway::autograd
