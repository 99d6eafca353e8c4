// Which op made the first number that is not finite, as PyTorch's detect_anomaly.
//   AnomalyGuard guard;
//   run(model, context).backward();      throws Error(numbers) that names the op
// Every result of an op is read for it, forward and backward, by the CPU: of a GPU's each is waited for and copied. No number changes.
#pragma once
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autograd/tape.h"

namespace spillway::autograd {

/// While one lives, each op that runs forward on the thread that made it, and each whose backward runs there, must give finite numbers:
/// else Error(numbers) says on several lines which op did not, forward or backward, behind which layer, of which shape its result is, where
/// in it the first such number lies, and between which numbers all that it was made of lies. A NaN always counts; an infinity does not
/// where the op read infinities that are no parameter's, or was told to write them: those of a mask. Layers are named if the guard lived
/// in forward too. Of several the innermost is asked. Not across threads.
class AnomalyGuard {
 public:
  struct Options {
    std::string where;     // what the report begins with: "step 7, block 2"
    bool backward = true;  // false: what flows back is not read. A loss scale may make infinities of it that its owner expects
  };
  AnomalyGuard() : AnomalyGuard(Options()) {}
  explicit AnomalyGuard(Options options);
  ~AnomalyGuard();
  AnomalyGuard(const AnomalyGuard&) = delete;
  AnomalyGuard& operator=(const AnomalyGuard&) = delete;

  /// The thread's innermost; null: none.
  static AnomalyGuard* current();
  /// What is in that memory is the parameter of this name: an op that reads it is in the layer "<name>" less ".weight".
  void name(const Storage& memory, const std::string& parameter) { names_[&memory] = parameter; }

  /// Throws the report. Else which layer the op is in (" in L") or comes after (" after L"); empty if none has been named.
  std::string check_output(const char* op, const Tensor& output, std::span<const Variable> inputs, bool infinities);
  /// What an op's backward has made of `gradient`, by input, and of what forward saved.
  struct Made {
    const char* op;
    const std::string& layer;  // as check_output() gave it
    std::vector<std::pair<size_t, Tensor>> gradients;
    const Tensor& gradient;
    std::vector<Tensor> saved;
  };
  bool checks_backward() const { return options_.backward; }
  /// Throws the report.
  void check_gradients(const Made& made) const;

 private:
  const Options options_;
  AnomalyGuard* const outer_;
  std::map<const Storage*, std::string> names_;
  std::string last_layer_;
};

}  // namespace spillway::autograd
