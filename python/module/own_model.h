// A model whose blocks are written in Python, for spillway::Trainer. A block is a Python function forward(x, batch) and the parameters that
// it declares. To the run it is an nn::Module like any other: its parameters, gradients and state lie where the plan says, and what
// backward needs is on the run's tape. Each rank of a process calls forward from a separate thread, under the GIL, which the operations
// release while they compute.
#pragma once
#include <nanobind/nanobind.h>

#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "nn/module.h"
#include "python/module/pass.h"
#include "python/module/raised.h"

namespace spillway::python {

/// A declared parameter, its name in the model, and the values with which it starts (nn::Parameter::given).
struct NamedParameter {
  std::string name;
  std::shared_ptr<const Declared> declared;
  std::function<void(i64 begin, std::span<double> out)> given;  // computes the initial values; if empty, they are drawn at random
  nb::object values = {};  // for a model of PyTorch: the Python function that gives the initial values (torch_block.h)
  bool statistic = false;  // nn::Parameter::statistic
};

struct OwnBlock {
  std::string name;
  nb::object forward;  // not used for a model of PyTorch
  std::vector<NamedParameter> parameters;
};

/// The Python objects that compute the blocks of PyTorch in one run (torch_block.h). Each rank has its own, because each rank computes on a
/// thread of its own.
class Skeletons {
 public:
  /// `start_run` is a Python function that returns an object with the methods skeleton(), which makes a new object, and end(), which is
  /// called when the run has ended. It is empty for a model that PyTorch does not compute.
  Skeletons(const nb::object& start_run, Raised& raised);
  ~Skeletons();
  Skeletons(const Skeletons&) = delete;
  Skeletons& operator=(const Skeletons&) = delete;

  bool are_needed() const { return run_.is_valid(); }
  /// Returns a new object, which lives as long as this.
  nb::handle add();

 private:
  Raised& raised_;
  nb::object run_;
  std::vector<nb::object> made_;
};

/// The description from which each rank builds the model. Its Python objects are touched only under the GIL.
struct OwnModel {
  struct Output {
    Shape shape;
    DType dtype;
  };
  std::vector<OwnBlock> blocks;
  std::vector<InputShape> inputs;  // the inputs that the model declares; empty: the model reads tokens
  // Empty unless PyTorch computes the blocks. start_run() is called once for each run, see Skeletons. Accessed under the GIL.
  nb::object start_run;
  // The first output of each block for each kind of input (own_model.cc); accessed under the GIL.
  mutable std::map<std::string, Output> outputs;

  /// Returns the blocks with parameters of type `dtype`. Exceptions of their Python code are kept in `raised`, which must outlive the
  /// blocks, as `skeletons` must.
  nn::Sequential build(DType dtype, const std::shared_ptr<const OwnModel>& self, Skeletons& skeletons, Raised& raised) const;
};

/// Declares for its lifetime that this thread runs Python code whose result the run needs. Ctrl-C then takes effect only when the code
/// has ended, so that the run can save. Must be used under the GIL.
class RunCode {
 public:
  RunCode();
  ~RunCode();
  RunCode(const RunCode&) = delete;
  RunCode& operator=(const RunCode&) = delete;
};

/// Returns the parameter that a Python Parameter declares, under this name in the model. A Parameter that has been used, or that was made
/// from a tensor, starts with its present values; another one starts with new values. Throws WrongType for any other object.
NamedParameter named_parameter(const std::string& name, const nb::object& parameter);

/// Binds Parameter and Batch, and the training of a model that the user writes in Python.
void bind_own_model(nb::module_& module);
void bind_own_training(nb::module_& module);

}  // namespace spillway::python
