#include "python/module/torch_block.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <utility>

#include "base/error.h"
#include "device/foreign_memory.h"
#include "python/module/arrays.h"
#include "python/module/graph.h"
#include "tensor/create.h"

namespace spillway::python {
namespace {

// A Python object that C++ holds on threads without the GIL.
class HeldObject {
 public:
  explicit HeldObject(const nb::object& object) : object_(nb::object(object).release().ptr()) {}
  ~HeldObject() {
    drop_in_python([object = object_] { Py_XDECREF(object); });
  }
  HeldObject(const HeldObject&) = delete;
  HeldObject& operator=(const HeldObject&) = delete;
  nb::handle get() const { return object_; }

 private:
  PyObject* object_;
};

// Returns PyTorch's view of the tensor's memory. The view must not be used after the call that gets it.
nb::object view(const Tensor& t) { return torch_view(t); }

nb::list views(const std::vector<Tensor>& tensors) {
  nb::list all;
  for (const Tensor& t : tensors) all.append(t.defined() ? view(t) : nb::none());
  return all;
}

// Measured holds what the skeleton measured of a block for a micro-batch of a given size.
struct Measured {
  Shape shape;  // of the output
  DType dtype;
  i64 forward_bytes, record_bytes, kept_bytes, backward_bytes;  // PyTorch's memory: peaks, and what is kept from forward to backward
};

// Returns the index of the GPU on which the current stream computes, or which its meta device imitates, as an int, or None for the CPU.
nb::object gpu_index() {
  const Device device = Stream::current().device;
  return device.works_as_cuda() ? nb::object(nb::int_(device.index)) : nb::none();
}

// Returns the handle (cudaStream_t) of the current stream's queue as an int, which is 0 on the CPU. PyTorch puts its work on this queue, so
// it needs no events to be ordered with the run's: what the run has put on the queue, or has made the queue wait for, comes first.
nb::int_ gpu_queue() { return nb::int_(reinterpret_cast<uintptr_t>(Stream::current().queue)); }

// Counts bytes of PyTorch's memory for as long as the result lives.
Allocation counted_bytes(i64 bytes) {
  Allocator* const counting = ForeignMemory::current();
  return counting ? counting->allocate(bytes, "PyTorch") : Allocation();
}

}  // namespace

Variable TorchBlock::forward(const Variable& x, const nn::Context& context) const {
  std::vector<Variable> read{x};
  for (const nn::ParameterUse& one : parameters_) read.push_back(context.use(*one.parameter, one.use));
  return Stream::current().is_meta() ? measured(read, context) : computed(read, context);
}

Variable TorchBlock::measured(const std::vector<Variable>& read, const nn::Context& context) const {
  Measured m;
  {
    const Locked locked;
    drop_kept();
    const RunCode code;
    raised_.run(where("measure"), [&] {
      const bool training = context.mode == nn::Mode::train;
      const nb::tuple all =
          nb::cast<nb::tuple>(skeleton_.attr("measure")(index_, context.batch->row_mask_B.size(0), training, gpu_index()));
      m.shape = shape_of(nb::cast<std::vector<i64>>(all[0]));
      m.dtype = dtype_of(nb::cast<std::string>(all[1]));
      m.forward_bytes = nb::cast<i64>(all[2]), m.record_bytes = nb::cast<i64>(all[3]);
      m.kept_bytes = nb::cast<i64>(all[4]), m.backward_bytes = nb::cast<i64>(all[5]);
    });
  }
  autograd::Recorder recorder(read, "torch");
  static_cast<void>(counted_bytes(recorder.recording() ? m.record_bytes : m.forward_bytes));
  Tensor y = empty(m.shape, m.dtype, "output of PyTorch's block");
  if (!recorder.recording()) return y;
  const auto graph = std::make_shared<Allocation>(counted_bytes(m.kept_bytes));
  std::vector<autograd::SavedTensor> saved;
  for (const Variable& one : read) saved.push_back(one.value.defined() ? recorder.save(one) : autograd::SavedTensor());
  return recorder.output(std::move(y), [graph, saved, bytes = m.backward_bytes](autograd::Backward& b) {
    static_cast<void>(counted_bytes(bytes));
    for (size_t i = 0; i < saved.size(); ++i) b.target_if_needed(static_cast<int>(i));
  });
}

Variable TorchBlock::computed(const std::vector<Variable>& read, const nn::Context& context) const {
  const MicroBatch& batch = *context.batch;
  autograd::Recorder recorder(read, "torch");
  std::vector<Tensor> weights;
  for (size_t i = 1; i < read.size(); ++i) weights.push_back(read[i].value);
  const u64 seed = context.random.derive("torch").derive(model_->blocks[index_].name, static_cast<u64>(batch.first_sample)).value;
  const double weight = static_cast<double>(batch.counted_targets);
  Tensor y;
  std::shared_ptr<HeldObject> graph;
  {
    const Locked locked;
    drop_kept();
    const RunCode code;
    raised_.run(where("forward"), [&] {
      nb::dict inputs;
      for (size_t i = 0; i < model_->inputs.size(); ++i) inputs[model_->inputs[i].name.c_str()] = view(batch.inputs[i]);
      const nb::object x = read[0].value.defined() ? view(read[0].value) : nb::none();
      const char* const keep = !recorder.recording() ? "nothing" : context.recomputing ? "graph" : "movable graph";
      const nb::object done = skeleton_.attr("forward")(
          index_, x, read[0].needs_gradient(), views(weights), inputs, batch.row_mask_B.size(0), batch.samples, batch.number, weight,
          context.mode == nn::Mode::train, keep, seed, Stream::current().thread_count(), gpu_index(), gpu_queue());
      y = empty(shape_of(nb::cast<std::vector<i64>>(done.attr("shape"))), dtype_of(nb::cast<std::string>(done.attr("dtype"))),
                "output of PyTorch's block");
      done.attr("write")(view(y), gpu_queue());
      if (recorder.recording()) graph = std::make_shared<HeldObject>(nb::object(done.attr("graph")));
    });
  }
  if (!recorder.recording()) return y;
  std::vector<autograd::SavedTensor> saved;
  for (const Variable& one : read) saved.push_back(one.value.defined() ? recorder.save(one) : autograd::SavedTensor());
  const double factor = context.loss_factor;
  return recorder.output(std::move(y), [this, graph, saved, factor](autograd::Backward& b) {
    std::vector<Tensor> values, targets;
    for (size_t i = 0; i < saved.size(); ++i) {
      values.push_back(saved[i].ticket < 0 ? Tensor() : b.saved(saved[i]));
      targets.push_back(b.target_if_needed(static_cast<int>(i)));
    }
    const Locked locked;
    const RunCode code;
    raised_.run(where("backward"),
                [&] { graph->get().attr("backward")(views(values), view(b.gradient()), factor, views(targets), gpu_queue()); });
  });
}

NamedParameter torch_parameter(const std::string& name, const nb::tuple& spec) {
  auto declared = std::make_shared<Declared>();
  declared->shape = shape_of(nb::cast<std::vector<i64>>(spec[0]));
  declared->leaf = std::make_shared<Leaf>();
  declared->leaf->wanted = nb::cast<bool>(spec[1]);
  declared->of_ids = nb::cast<bool>(spec[2]);
  return {name, declared, {}, nb::object(spec[3]), nb::cast<bool>(spec[4])};
}

std::function<void(i64 begin, std::span<double> out)> torch_values(const std::string& name, nb::handle values, Raised& raised) {
  return [name, values, &raised](i64 begin, std::span<double> out) {
    const Locked locked;
    const RunCode code;
    raised.run("[model] the initial values of " + name, [&] {
      const Tensor got = readable_view(values(begin, out.size()), name.c_str());
      if (got.dtype() != DType::f64 || got.elems() != static_cast<i64>(out.size()))
        throw WrongValue(name + ": expected " + std::to_string(out.size()) + " initial values of type f64, got " +
                         std::string(to_string(got.dtype())) + " " + to_string(got.shape()));
      std::memcpy(out.data(), got.raw(), out.size_bytes());
    });
  };
}

std::function<void(Device device, i64 bytes)> torch_limit(nb::handle skeleton, Raised& raised) {
  return [skeleton, &raised](Device device, i64 bytes) {
    if (!device.is_cuda()) return;
    const Locked locked;
    raised.run("[device] PyTorch's memory on " + to_string(device), [&] { skeleton.attr("limit")(device.index, bytes); });
  };
}

}  // namespace spillway::python
