#include "python/module/graph.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "autograd/kept_ops.h"
#include "autograd/no_grad.h"
#include "base/error.h"
#include "kernels/accumulate.h"

namespace spillway::python {
namespace {

// the first id of parameters that do not belong to the graph's model; it is above all ids of a model's parameters
constexpr u32 kOthers = u32{1} << 30;

thread_local std::weak_ptr<Graph> newest;
thread_local int silences = 0;

Tensor sum_of(const Tensor& a, const Tensor& b) {
  const Tensor sum = empty(a.shape(), a.dtype(), "gradient");
  kernels::add(a, b, sum);
  return sum;
}

// The context manager `with no_grad():`, which may be entered more than once. Each entry belongs to a thread and is left on that thread
// only.
class NoGrad {
 public:
  NoGrad() = default;
  NoGrad(const NoGrad&) = delete;
  NoGrad& operator=(const NoGrad&) = delete;
  ~NoGrad() {
    while (!held_.empty()) drop();
  }
  void enter() {
    held_.push_back({std::make_unique<autograd::NoGrad>(), std::this_thread::get_id()});
    ++silences;
  }
  void leave() {
    if (held_.empty() || held_.back().thread != std::this_thread::get_id())
      throw Error(
          ErrorCode::usage,
          "[no_grad] expected the thread that entered the with block to leave it, got another thread, or a block that was not entered");
    drop();
  }

 private:
  struct Held {
    std::unique_ptr<autograd::NoGrad> silence;
    std::thread::id thread;
  };
  // Drops the most recent entry into no_grad. If another thread made that entry and has not left it, no_grad stays in force on that thread.
  void drop() {
    if (held_.back().thread == std::this_thread::get_id()) {
      --silences;
    } else {
      static_cast<void>(held_.back().silence.release());
    }
    held_.pop_back();
  }

  std::vector<Held> held_;
};

}  // namespace

bool Leaf::wants() const { return weights ? !weights->eager->parameters()[id]->frozen : wanted; }

Weights::Weights(nn::Sequential blocks) : model(std::move(blocks)) {
  eager = std::make_unique<nn::EagerParameters>(model);
  leaves.resize(model.parameters.size());
}

Weights::Weights(const std::vector<std::pair<Tensor, std::shared_ptr<Leaf>>>& tensors) {
  std::vector<std::shared_ptr<nn::Parameter>> parameters;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const std::string& name = tensors[i].second->name;
    parameters.push_back(
        nn::make_parameter(name.empty() ? "tensor" + std::to_string(i) : name, tensors[i].first.shape(), tensors[i].first.dtype(), {}));
  }
  eager = std::make_unique<nn::EagerParameters>(std::move(parameters));
  for (u32 id = 0; id < tensors.size(); ++id) {
    const auto& [tensor, leaf] = tensors[id];
    eager->adopt(id, tensor);
    eager->parameters()[id]->frozen = !leaf->wants();
    leaves.push_back(leaf);
    leaf->id = id;
    if (!leaf->gradient.defined()) continue;
    kernels::copy(leaf->gradient, eager->target(id, 0, tensor.shape(), wide_dtype(tensor.dtype())));
    eager->done(id, 0);
    leaf->gradient = {};
  }
}

Variable Graph::lift(const std::shared_ptr<Leaf>& leaf, const Tensor& value) {
  // The model's blocks may run later on this graph. They must then find the leaf that is put on the tape now.
  if (!model_ && leaf->weights && !leaf->weights->model.blocks.empty()) model_ = leaf->weights;
  auto& [kept, place] = leaves_[leaf.get()];
  if (!kept) {
    kept = leaf;
    place = leaf->weights ? tape_.parameter(value, number_of({leaf->weights, leaf->id})) : tape_.input(value);
  }
  return place;
}

u32 Graph::number_of(const Place& place) {
  if (place.first == model_) return place.second;
  const auto found = std::ranges::find(others_, place);
  const auto at = static_cast<u32>(found - others_.begin());
  if (found == others_.end()) others_.push_back(place);
  return kOthers + at;
}

Graph::Place Graph::place_of(u32 parameter) const {
  return parameter >= kOthers ? others_.at(parameter - kOthers) : Place{model_, parameter};
}

void Graph::run_model(const std::shared_ptr<Weights>& weights) {
  if (!may_run(weights))
    throw Error(ErrorCode::usage,
                "[model] expected one model per graph, got a second one: call backward() on the loss of the first before the second runs");
  model_ = weights;
}

Tensor Graph::target(u32 parameter, u8 use, const Shape& shape, DType dtype) {
  const auto [weights, id] = place_of(parameter);
  return weights->eager->target(id, use, shape, dtype);
}

void Graph::done(u32 parameter, u8 use) {
  const auto [weights, id] = place_of(parameter);
  weights->eager->done(id, use);
}

std::shared_ptr<Graph> Graph::held(const Variable& v) {
  if (holders_.size() >= most_holders_) {
    std::erase_if(holders_, [](const auto& holder) { return holder.expired(); });
    most_holders_ = 64 + 2 * holders_.size();
  }
  const auto holder = std::make_shared<Holder>(shared_from_this(), v.slot);
  holders_.push_back(holder);
  return {holder, this};
}

std::vector<i32> Graph::held_slots() {
  std::vector<i32> slots;
  for (const auto& one : holders_) {
    if (const auto holder = one.lock()) slots.push_back(holder->slot);
  }
  return slots;
}

void Graph::backward(const Variable& y, const Tensor& dy, bool retain) {
  over_ = true;  // the graph is over even if an error ends the backward
  autograd::KeptOps keep(held_slots(), retain);
  tape_.backward(y, dy);
  for (const auto& [key, entry] : leaves_) {
    const auto& [leaf, place] = entry;
    if (leaf->weights && place.weight) continue;
    const Tensor gradient = tape_.take_gradient(place);
    if (!gradient.defined()) continue;
    if (leaf->weights) {  // the leaf's parameter was given to an optimizer after the graph had recorded it
      kernels::copy(gradient, leaf->weights->eager->target(leaf->id, 0, gradient.shape(), wide_dtype(gradient.dtype())));
      leaf->weights->eager->done(leaf->id, 0);
    } else {
      leaf->gradient = leaf->gradient.defined() ? sum_of(leaf->gradient, gradient) : gradient;
    }
  }
  over_ = !keep.left();
  if (over_) leaves_.clear();
}

Given Given::read(const nb::handle& given) noexcept {
  Given read;
  Array* found = nullptr;
  if (given.is_none() || !nb::try_cast(given, found, false) || found == nullptr) read.problem_ = of_type("a Tensor", given);
  read.array_ = found;
  return read;
}

Array constant(Tensor value) { return {std::move(value), nullptr, nullptr}; }

Array computed_on(const Variable& y, const std::shared_ptr<Graph>& graph) {
  return {y, y.needs_gradient() ? graph->held(y) : nullptr, nullptr};
}

Array made(Tensor value) {
  if (Pass* pass = Pass::current()) return {{}, nullptr, nullptr, pass->hold(std::move(value))};
  return constant(std::move(value));
}

Tensor Array::gradient() const {
  if (!leaf) return kept ? kept->gradient : Tensor();
  if (!leaf->weights) return leaf->gradient;
  return leaf->weights->eager->gradient(leaf->id);
}

void Array::forget_gradient() const {
  if (!leaf && kept) kept->gradient = {};
  if (!leaf) return;
  if (!leaf->weights) return static_cast<void>(leaf->gradient = {});
  leaf->weights->eager->forget(leaf->id);
}

void Array::check_wanted(bool wanted) const {
  if (wanted && graph && !graph->over())
    throw Error(ErrorCode::usage, "[requires_grad] expected a tensor that was not computed from others: detach() it first");
  if (wanted && !is_floating(value().dtype()))
    throw Error(ErrorCode::usage,
                "[requires_grad] expected a tensor of floating-point numbers, got " + std::string(to_string(value().dtype())));
  if (!wanted || !leaf || !leaf->weights) return;
  const nn::Parameter& parameter = *leaf->weights->eager->parameters()[leaf->id];
  if (parameter.statistic || !parameter.is_plain())
    throw Error(ErrorCode::usage, "[requires_grad] expected a weight that can be trained, got " + parameter.name);
}

void set_wanted(Array& array, bool wanted) {
  const Array now = array;
  {
    const Turn turn(false);
    now.check_wanted(wanted);
    if (now.leaf && now.leaf->weights) now.leaf->weights->eager->parameters()[now.leaf->id]->frozen = !wanted;
    if (now.leaf) now.leaf->wanted = wanted;
  }
  if (array.leaf && (array.leaf->weights || array.declared)) return;
  if (wanted == (array.leaf != nullptr)) return;
  array = {Variable(now.value()), nullptr, wanted ? std::make_shared<Leaf>() : nullptr};
}

std::shared_ptr<Graph> current_graph() {
  std::shared_ptr<Graph> graph = newest.lock();
  if (!graph || graph->over()) newest = graph = std::make_shared<Graph>();
  return graph;
}

bool recording() { return silences == 0; }

void bind_no_grad(nb::module_& module) {
  nb::class_<NoGrad>(module, "_NoGrad", "In a block `with spillway.no_grad(): ...` no operation of this thread is recorded for backward().")
      .def(nb::init<>())
      .def(
          "__enter__", [](NoGrad& self) -> NoGrad& { return self.enter(), self; }, nb::rv_policy::reference)
      .def("__exit__", [](NoGrad& self, const nb::args&) { self.leave(); });
}

namespace {

// Throws if the array is a parameter taken from a model that was moved to another device afterwards.
void check_in_place(const Array& array) {
  if (!array.leaf || !array.leaf->weights) return;
  const Device now = array.leaf->weights->eager->memory(array.leaf->id).device();
  if (now != array.value().device())
    throw Error(ErrorCode::usage, "[device] expected a current parameter of the model, got " + array.leaf->name +
                                      " from when the model was on " + to_string(array.value().device()) + ": the model is on " +
                                      to_string(now) + " now; get the parameter from the model again");
}

}  // namespace

Inputs::Inputs(std::span<const Array* const> inputs) {
  bool found = false;
  arrays.reserve(inputs.size());
  for (const Array* input : inputs) {
    // In a block's forward a Parameter stands for a parameter of the run; elsewhere it is a leaf.
    if (input->declared && Pass::current() != nullptr) {
      arrays.push_back({input->variable(), nullptr, nullptr, input->declared});
    } else {
      arrays.push_back({input->variable(), input->graph, input->leaf, input->in_block});
    }
    if (!input->value().defined()) continue;
    bytes += input->value().bytes();
    if (!std::exchange(found, true)) device = input->value().device();
  }
}

Lifted::Lifted(const Inputs& inputs) {
  if (Pass* pass = Pass::current()) {
    for (const Array& input : inputs.arrays) {
      if ((input.leaf && input.leaf->wants()) || (input.graph && !input.graph->over()))
        throw Error(ErrorCode::usage,
                    "[forward] expected tensors without requires_grad from outside of the block, because no gradient reaches them, got one "
                    "with it: declare a Parameter, or detach() the tensor");
      const bool outside = !input.in_block && input.v.value.defined();
      variables.push_back(outside ? Variable(Pass::brought(input.v.value)) : input.v);
      pass->read(variables.back());
    }
    return;
  }
  const bool records = recording();
  bool wanted = false;
  for (const Array& input : inputs.arrays) {
    if (!input.v.value.defined()) continue;
    if (input.value().device() != inputs.device)
      throw Error(ErrorCode::usage, "[device] expected tensors on one device, got one on " + to_string(inputs.device) + " and one on " +
                                        to_string(input.value().device()) + ": move one of them with to()");
    check_in_place(input);
    wanted = wanted || (input.leaf && input.leaf->wants());
    if (!records || !input.graph || input.graph->over()) continue;
    if (graph && graph != input.graph)
      throw Error(ErrorCode::usage,
                  "[graph] expected tensors of one graph, got tensors of two: they were computed on two threads, or backward() was called "
                  "between them");
    graph = input.graph;
  }
  if (records && wanted && !graph) graph = current_graph();
  variables.reserve(inputs.arrays.size());
  for (const Array& input : inputs.arrays) {
    if (graph && input.leaf && input.leaf->wants()) {
      variables.push_back(graph->lift(input.leaf, input.value()));
    } else if (graph && input.graph == graph) {
      variables.push_back(input.v);
    } else {
      variables.emplace_back(input.value());
    }
  }
}

}  // namespace spillway::python
