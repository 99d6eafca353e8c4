#include "python/module/own_model.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "models/weights.h"
#include "ops/dense.h"
#include "ops/elementwise/dropout.h"
#include "ops/losses/loss.h"
#include "python/module/arrays.h"
#include "python/module/random.h"
#include "python/module/torch_block.h"
#include "tensor/create.h"
#include "tensor/print.h"

namespace spillway::python {
namespace {

thread_local int run_code = 0;             // the number of RunCode objects of this thread
thread_local bool interrupt_kept = false;  // true if Ctrl-C came while this thread ran code of the user, which it must not interrupt

// Implements the Python class Parameter.
struct ParameterArray : Array {
  ParameterArray(Shape shape, nn::Initializer init, bool wanted, bool of_ids, DType dtype) {
    leaf = std::make_shared<Leaf>();
    leaf->wanted = wanted;
    declared = std::make_shared<Declared>();
    declared->shape = shape, declared->init = init, declared->of_ids = of_ids, declared->dtype = dtype;
    declared->key = next_key(), declared->leaf = leaf;
  }
  ParameterArray(const Tensor& value, bool wanted) : ParameterArray(value.shape(), {}, wanted, false, value.dtype()) {
    declared->own = value;
  }
};

nn::Initializer initializer_of(const std::string& kind, double std) {
  using Kind = nn::Initializer::Kind;
  if (!std::isfinite(std) || std < 0) throw WrongValue("std: expected a number of 0 or above, got " + std::to_string(std));
  if (kind == "zeros" || ((kind == "normal" || kind == "uniform") && std == 0)) return {Kind::zeros};
  if (kind == "ones") return {Kind::ones};
  if (kind == "normal") return {Kind::normal, std};
  if (kind == "uniform") return {Kind::uniform, std};
  throw WrongValue("init: expected normal, uniform, zeros or ones, got " + kind);
}

// Implements the Python class Batch.
struct Batch {
  std::shared_ptr<Pass> pass;
  std::shared_ptr<const OwnModel> model;
  DType dtype;          // type of the model's weights
  bool summed = false;  // true once the block has called the function that sums the losses of the batch

  const nn::Context& context() const { return pass->context(); }
  const MicroBatch& data() const { return *context().batch; }
  Array hold(Variable v) const { return {{}, nullptr, nullptr, pass->hold(std::move(v))}; }
  bool training() const { return context().mode == nn::Mode::train; }

  Array input(const std::string& name) const {
    std::string names;
    for (size_t i = 0; i < model->inputs.size(); ++i) {
      names += (names.empty() ? "" : ", ") + model->inputs[i].name;
      if (model->inputs[i].name != name) continue;
      const Tensor& t = data().inputs.at(i);
      if (!is_floating(t.dtype()) || t.dtype() == dtype) return hold(t);
      const Running running(Device::cpu(), t.bytes() >= kLongBytes, InForward::on_block);
      return hold(converted(t, dtype));
    }
    throw WrongValue("batch: expected one of the data's names (" + names + "), got " + name);
  }
  Array of_tokens(const Tensor& t, const char* what) const {
    if (!t.defined())
      throw Error(ErrorCode::usage, std::string("[batch] expected a model that reads tokens, got one with data of its own, which has no ") +
                                        what + ": read batch[name]");
    return hold(t);
  }

  template <class Loss>
  Array loss_of(const Array& given, const Loss& loss) {
    static_cast<void>(context());
    summed = true;
    return apply(loss, given);
  }
  Array loss(const Given& losses) {
    return loss_of(losses, [this](const Variable& v) { return context().loss(v); });
  }
  Array cross_entropy(const Given& logits) {
    const Tensor targets = targets_of("cross_entropy");
    return loss_of(logits, [&](const Variable& v) { return ops::cross_entropy_sum(v, targets, context().loss_factor); });
  }
  Array linear_cross_entropy(const Given& x, const Given& weight) {
    const Tensor targets = targets_of("linear_cross_entropy");
    summed = true;
    return apply([&](const Variable& v, const Variable& w) { return ops::linear_cross_entropy(v, w, targets, context().loss_factor); }, x,
                 weight);
  }
  Tensor targets_of(const char* what) const {
    if (!model->inputs.empty())
      throw Error(ErrorCode::usage, std::string("[batch] expected a model that reads tokens for ") + what +
                                        "(), got one with data of its own: compute the losses of the rows and return batch.loss(losses)");
    return data().targets_BT;
  }
};

// Applies dropout to x: in the forward of a block with the run's random numbers, and in a program's own loop with those of random.h.
Array dropped(const Given& x, const Real& p, bool training) {
  const double share = p;
  if (Pass* pass = Pass::current()) {
    const RandomKey key = pass->next_dropout();
    const double now = pass->context().mode == nn::Mode::train ? share : 0;
    return apply([&, first = pass->context().batch->first_sample](const Variable& v) { return ops::dropout(v, now, key, first); }, x);
  }
  if (!training || share == 0) return x;
  return apply([&, key = next_key()](const Variable& v) { return ops::dropout(v, share, key, 0); }, x);
}

i64 rows_of(const MicroBatch& batch) { return batch.targets_BT.size(0); }

// A block that is written in Python, as an nn::Module that a training run executes.
class PythonBlock final : public nn::Module {
 public:
  PythonBlock(std::shared_ptr<const OwnModel> model, size_t index, std::vector<BlockParameter> parameters, DType dtype, Raised& raised)
      : model_(std::move(model)), index_(index), parameters_(std::move(parameters)), dtype_(dtype), raised_(raised) {}

  Variable forward(const Variable& x, const nn::Context& context) const override {
    const Locked locked;
    drop_kept();
    const auto pass = std::make_shared<Pass>(block().name, parameters_, x, context);
    pass->begin();
    Variable y;
    try {
      const RunCode code;
      raised_.run("[forward] block `" + block().name + "`", [&] { y = run(x, context, pass); });
    } catch (...) {
      pass->end();
      throw;
    }
    pass->end();
    return y;
  }

  std::vector<nn::ParameterUse> parameters() const override {
    std::vector<nn::ParameterUse> uses;
    for (const BlockParameter& one : parameters_) uses.push_back(one.use);
    return uses;
  }

 private:
  const OwnBlock& block() const { return model_->blocks[index_]; }
  bool is_last() const { return index_ + 1 == model_->blocks.size(); }
  [[noreturn]] void refuse(const std::string& what) const {
    throw Error(ErrorCode::usage, "[forward] block `" + block().name + "`: expected " + what);
  }

  Variable run(const Variable& x, const nn::Context& context, const std::shared_ptr<Pass>& pass) const {
    nb::object input = nb::none();
    if (x.value.defined()) input = nb::cast(Array{{}, nullptr, nullptr, pass->hold(x)});
    const nb::object batch = nb::cast(Batch{pass, model_, dtype_});
    const nb::object result = block().forward(input, batch);
    if (!nb::isinstance<Array>(result)) refuse("forward to return a Tensor, got " + kind_of(result));
    return checked(nb::cast<const Array&>(result), nb::cast<const Batch&>(batch), x, context, *pass);
  }

  Variable checked(const Array& result, const Batch& batch, const Variable& x, const nn::Context& context, Pass& pass) const {
    if (!result.declared && ((result.leaf && result.leaf->wants()) || (result.graph && !result.graph->over())))
      refuse("forward to return a tensor that it computed, got one from outside that requires a gradient");
    Variable y = result.variable();
    if (!result.ends_with_forward()) y = Pass::brought(y.value);
    pass.read(y);
    const bool trains = context.tape != nullptr && context.mode == nn::Mode::train;
    if (!is_last()) {
      check_shape(y, x, context);
    } else if (context.mode != nn::Mode::generate) {
      if (!batch.summed || y.shape().rank() != 0 || y.dtype() != DType::f64)
        refuse(
            "the last block to return the loss of the batch, one f64: batch.loss(losses of the rows) or batch.cross_entropy(logits), or "
            "a sum of such losses, got " +
            std::string(to_string(y.dtype())) + " " + to_string(y.shape()));
    }
    if (trains) {
      pass.check_all_used();
      if (!pass.read_input()) refuse("forward to use its input x, got one that does not: backward could not reach the blocks before it");
      if (!y.needs_gradient() && (x.needs_gradient() || trainable()))
        refuse(
            "forward to return a tensor that depends on its parameters and input, got one that no gradient flows through (no_grad, "
            "detach() and numpy() cut it off)");
    }
    return ops::dense(y);
  }

  bool trainable() const {
    return std::ranges::any_of(parameters_, [](const BlockParameter& one) { return one.declared->trainable(); });
  }

  // Throws an Error unless the output has one row for each row of the batch, and has the same shape whenever the input has the same
  // shape.
  void check_shape(const Variable& y, const Variable& x, const nn::Context& context) const {
    const MicroBatch& batch = *context.batch;
    const Tensor& tokens = batch.tokens_BT;
    const Shape first = tokens.defined() ? tokens.shape() : Shape{rows_of(batch)};
    bool fits = y.shape().rank() >= first.rank();
    for (int axis = 0; fits && axis < first.rank(); ++axis) fits = y.shape()[axis] == first[axis];
    if (!fits) refuse("an output that begins with the axes " + to_string(first) + " of the batch, got " + to_string(y.shape()));
    const std::string kind = block().name + " " + to_string(first) + " " + (x.value.defined() ? to_string(x.shape()) : "") + " " +
                             std::string(to_string(dtype_)) + (context.mode == nn::Mode::train ? " train" : "");
    const auto [known, fresh] = model_->outputs.try_emplace(kind, OwnModel::Output{y.shape(), y.dtype()});
    if (known->second.shape != y.shape() || known->second.dtype != y.dtype())
      refuse("the same output for every micro-batch of this size, " + std::string(to_string(known->second.dtype)) + " " +
             to_string(known->second.shape) + " as in the first one, got " + std::string(to_string(y.dtype())) + " " +
             to_string(y.shape()));
  }

  const std::shared_ptr<const OwnModel> model_;
  const size_t index_;
  const std::vector<BlockParameter> parameters_;
  const DType dtype_;
  Raised& raised_;
};

}  // namespace

RunCode::RunCode() { ++run_code; }

RunCode::~RunCode() {
  if (--run_code == 0 && std::exchange(interrupt_kept, false)) PyErr_SetInterrupt();
}

Skeletons::Skeletons(const nb::object& start_run, Raised& raised) : raised_(raised) {
  if (!start_run.is_valid()) return;
  const Locked locked;
  raised_.run("[model] the model of PyTorch", [&] { run_ = start_run(); });
}

Skeletons::~Skeletons() {
  if (!are_needed()) return;
  const Locked locked;
  made_.clear();
  try {
    run_.attr("end")();
  } catch (nb::python_error& failed) {
    failed.discard_as_unraisable("the end of a run of PyTorch's blocks");
  }
  run_.reset();
}

nb::handle Skeletons::add() {
  const Locked locked;
  const RunCode code;
  raised_.run("[model] the model of PyTorch", [&] { made_.push_back(run_.attr("skeleton")()); });
  return made_.back();
}

nn::Sequential OwnModel::build(DType dtype, const std::shared_ptr<const OwnModel>& self, Skeletons& skeletons, Raised& raised) const {
  nn::Sequential model;
  model.inputs = inputs;
  const nb::handle skeleton = skeletons.are_needed() ? skeletons.add() : nb::handle();
  if (skeleton.is_valid()) model.limit_foreign_memory = torch_limit(skeleton, raised);
  // the parameters made so far, each with the number of blocks that use it
  std::map<const Declared*, std::pair<std::shared_ptr<nn::Parameter>, u8>> made;
  for (size_t i = 0; i < blocks.size(); ++i) {
    std::vector<BlockParameter> parameters;
    for (const NamedParameter& one : blocks[i].parameters) {
      auto& [parameter, uses] = made[one.declared.get()];
      if (!parameter) {
        parameter = nn::make_parameter(one.name, one.declared->shape, dtype, one.declared->init);
        parameter->given = one.values.is_valid() ? torch_values(one.name, one.values, raised) : one.given;
        parameter->frozen = !one.declared->trainable();
        parameter->of_ids = one.declared->of_ids;
        parameter->statistic = one.statistic;
      }
      parameters.push_back({one.declared, {parameter, uses++}});
    }
    if (!skeletons.are_needed()) {
      model.push(std::make_unique<PythonBlock>(self, i, std::move(parameters), dtype, raised));
      continue;
    }
    std::vector<nn::ParameterUse> uses;
    for (BlockParameter& one : parameters) uses.push_back(std::move(one.use));
    model.push(std::make_unique<TorchBlock>(self, skeleton, i, std::move(uses), raised));
  }
  return model;
}

NamedParameter named_parameter(const std::string& name, const nb::object& parameter) {
  if (!nb::isinstance<ParameterArray>(parameter)) throw WrongType("parameters: expected a Parameter, got " + kind_of(parameter));
  const std::shared_ptr<const Declared> declared = nb::cast<const ParameterArray&>(parameter).declared;
  NamedParameter named{name, declared, {}};
  if (!declared->own.value.defined()) return named;
  const Tensor values = moved(declared->own.value, Device::cpu());
  named.given = [values](i64 begin, std::span<double> out) {
    const i64 each = size_of(values.dtype());
    for (double& value : out) value = load_wide(values.raw() + begin++ * each, values.dtype());
  };
  return named;
}

bool Declared::trainable() const { return leaf->wants(); }

void Declared::draw() const {
  const Running running(Device::cpu());
  if (own.value.defined()) return;  // another thread drew the value while this thread waited
  const Tensor value = empty(shape, dtype, "weights");
  const auto parameter = nn::make_parameter(leaf->name, shape, dtype, init);
  models::ScratchWeights(key.value).read_as(*parameter, 0, dtype, {value.raw(), static_cast<size_t>(value.bytes())});
  own = value;
}

static void bind_parameter(nb::module_& module) {
  const auto shape_tuple = [](const ParameterArray& self) {
    const auto extents = self.declared->shape.extents();
    return nb::tuple(nb::cast(std::vector<i64>(extents.begin(), extents.end())));
  };
  nb::class_<ParameterArray, Array>(
      module, "Parameter",
      "A weight of a Module. Parameter(tensor) is on the tensor's memory, as in PyTorch; Parameter(shape, init, std) has new values, which "
      "are\ndrawn when they are first used, so that a model for a Trainer takes no memory. In a Trainer's run it is a weight of the run, "
      "of "
      "the\nrun's type. The same Parameter in two modules is one weight that they share.")
      .def(
          "__init__",
          [](ParameterArray* self, const nb::object& data, const nb::object& init, const Real& std, const Flag& requires_grad,
             const Flag& embedding, const Word& dtype) {
            const bool flag = nb::isinstance<nb::bool_>(init);  // with a bool, the call is Parameter(data, requires_grad), as in PyTorch
            const bool wanted = flag ? nb::cast<bool>(init) : static_cast<bool>(requires_grad);
            if (nb::isinstance<Array>(data)) {
              const Array from = nb::cast<const Array&>(data);
              if (from.ends_with_forward()) throw WrongValue("data: expected a tensor outside of a block's forward, got one in it");
              new (self) ParameterArray(from.value(), wanted);
              return;
            }
            if (nb::hasattr(data, "__array__") || nb::hasattr(data, "__dlpack__"))
              throw WrongType("data: expected a Tensor or a shape, got " + kind_of(data) + ": use spillway.tensor(array)");
            const Shape extents = shape_of(Wholes::read(data).all());
            if (extents.elems() == 0) throw WrongValue("shape: expected at least one element, got " + to_string(extents));
            new (self)
                ParameterArray(extents, initializer_of(flag ? "normal" : Word::read(init).text(), std), wanted, embedding, dtype_of(dtype));
          },
          nb::arg("data"), nb::arg("init") = "normal", nb::arg("std") = 0.02, nb::kw_only(), nb::arg("requires_grad") = true,
          nb::arg("embedding") = false, nb::arg("dtype") = "f32",
          nb::sig(
              "def __init__(self, data: Tensor | collections.abc.Sequence[int] | int, init: str | bool = \"normal\", std: float = 0.02, "
              "*, requires_grad: bool = True, embedding: bool = False, dtype: str = \"f32\") -> None"),
          "data: a tensor, or a shape with new values: init \"normal\" or \"uniform\" with mean 0 and standard deviation std, \"zeros\" "
          "or\n"
          "\"ones\". In a Trainer's run these follow from the parameter's name and the run's seed, otherwise from manual_seed(). A "
          "parameter\nwithout requires_grad is not trained. embedding=True: its rows belong to tokens or classes, so that Muon does not "
          "step "
          "it as\na matrix. Weight decay in a Trainer's run applies to parameters of two or more axes.")
      .def_prop_ro("shape", shape_tuple, nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("ndim", [](const ParameterArray& self) { return self.declared->shape.rank(); })
      .def("dim", [](const ParameterArray& self) { return self.declared->shape.rank(); })
      .def("numel", [](const ParameterArray& self) { return self.declared->shape.elems(); })
      .def("nelement", [](const ParameterArray& self) { return self.declared->shape.elems(); })
      .def(
          "_set_value",
          [](ParameterArray& self, const Given& value) {
            if (self.leaf->weights)
              throw Error(
                  ErrorCode::usage,
                  "[parameter] expected a Parameter that no optimizer holds, got one that is in one: make the optimizer after to()");
            if (value.value().shape() != self.declared->shape)
              throw WrongValue("parameter: expected " + to_string(self.declared->shape) + ", got " + to_string(value.value().shape()));
            self.declared->own = value.value();
            self.declared->dtype = value.value().dtype();
            self.leaf->gradient = {};
          },
          nb::arg("value"))
      .def("__repr__", [](const ParameterArray& self) {
        if (!self.declared->own.value.defined()) return "Parameter(" + to_string(self.declared->shape) + ")";
        const Running running(self.declared->own.value.device());
        return "Parameter(" + to_string(self.declared->own.value) + ")";
      });
}

void bind_own_model(nb::module_& module) {
  bind_parameter(module);
  nb::class_<Batch>(module, "Batch", "What a block's forward may read besides its input. It lives as long as the forward.")
      .def(
          "__getitem__", [](const Batch& self, const Word& name) { return self.input(name); }, nb::arg("name"),
          "The tensor [rows, ...] of this name in the data. Floats have the type of the weights.")
      .def(
          "__len__", [](const Batch& self) { return rows_of(self.data()); }, "The number of rows.")
      .def_prop_ro(
          "tokens", [](const Batch& self) { return self.of_tokens(self.data().tokens_BT, "tokens"); }, "Token ids [B, T], i32.")
      .def_prop_ro(
          "positions", [](const Batch& self) { return self.of_tokens(self.data().positions_BT, "positions"); },
          "The position of each token in its text [B, T], i32.")
      .def_prop_ro(
          "targets", [](const Batch& self) { return self.of_tokens(self.targets_of("targets"), "targets"); },
          "The next token of each [B, T], i32; negative where none counts.")
      .def_prop_ro("training", &Batch::training, "False in a validation.")
      .def("loss", &Batch::loss, nb::arg("losses"),
           "The loss of the batch from losses[B, ...] of its rows: their sum over the rows that hold a sample, which the run divides by "
           "the\n"
           "number of samples in the step. The last block returns it, or a sum of several.")
      .def("cross_entropy", &Batch::cross_entropy, nb::arg("logits"), "The loss of the batch from logits[B, T, V] of its next tokens.")
      .def("linear_cross_entropy", &Batch::linear_cross_entropy, nb::arg("x"), nb::arg("weight"),
           "cross_entropy(linear(x, weight)) for x[B, T, C] and weight[V, C], without holding all logits in memory.")
      .def(
          "dropout",
          [](const Batch& self, const Given& x, const Real& p) { return static_cast<void>(self.context()), dropped(x, p, true); },
          nb::arg("x"), nb::arg("p"),
          "In training: sets elements of x[B, ...] to 0 with probability p and scales the others by 1 / (1 - p). The mask follows from "
          "the\n"
          "run's seed, the block, the number of the dropout in its forward and the sample.");
  module.def(
      "_dropout", [](const Given& x, const Real& p, const Flag& training) { return dropped(x, p, training); }, nb::arg("x"), nb::arg("p"),
      nb::arg("training"));
  module.def(
      "_keep_interrupt", [] { return run_code > 0 && (interrupt_kept = true); },
      "Returns whether this thread runs a block's forward or reads data for a run, and if so, repeats Ctrl-C when that has ended.");
}

}  // namespace spillway::python
