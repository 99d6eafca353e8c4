#include "python/module/model.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "data/files/atomic_folder.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "models/model.h"
#include "models/export/save.h"
#include "models/weights.h"
#include "nn/key_value_cache.h"
#include "python/module/arrays.h"
#include "tensor/create.h"
#include "tensor/print.h"
#include "trainer/checkpoints/adapters.h"
#include "trainer/checkpoints/generation_ends.h"
#include "trainer/run/data_sources.h"

namespace spillway::python {
namespace {

std::unique_ptr<models::WeightSource> first_weights(const trainer::ModelSource& source, const nn::Sequential& model, bool from_scratch,
                                                    u64 seed) {
  if (!from_scratch && source.has_weights) return trainer::weights_of(source, model);
  return std::make_unique<models::ScratchWeights>(seed);
}

void check_rank(const char* argument, const Tensor& t, int rank, const char* meaning) {
  if (t.rank() == rank) return;
  throw WrongValue(std::string(argument) + ": expected " + meaning + ", got " + to_string(t.shape()));
}

// Sets each target to the next token. The last position gets no target.
void shift(const Tensor& tokens_BT, const Tensor& targets_BT) {
  const i64 positions = tokens_BT.size(1);
  const auto from = tokens_BT.span<i32>(), to = targets_BT.span<i32>();
  for (size_t i = 0; i < to.size(); ++i) to[i] = static_cast<i64>(i) % positions + 1 < positions ? from[i + 1] : kIgnoredTarget;
}

// Copies the batch to the device of the current stream, unless it is on that device.
void bring_here(MicroBatch& batch) {
  for (Tensor* t : batch.tensors()) {
    if (t->defined()) *t = brought_here(*t);
  }
}

// Returns the stream of host memory.
Stream host_stream() { return {.memory = &MemoryPool::heap()}; }

template <class T>
void copy_span(const Tensor& from, const Tensor& to) {
  std::ranges::copy(from.span<T>(), to.span<T>().begin());
}

}  // namespace

Model::Model(const std::string& name, DType dtype, u64 seed, bool from_scratch, Device device)
    : dtype_(dtype), random_(RandomKey{seed}.derive("training")) {
  if (!is_floating(dtype_)) throw WrongValue("dtype: expected f32, f64, bf16 or f16, got " + std::string(to_string(dtype)));
  std::vector<std::string> notes;
  {
    const Running running(Device::cpu(), true);
    source_ = trainer::find_trained_model(name, "last");
    config_ = source_.config, notes = source_.notes;
    weights_ = std::make_shared<Weights>(models::build(config_, dtype_));
    models::fill(weights_->model, *first_weights(source_, weights_->model, from_scratch, seed));
  }
  for (const std::string& note : notes) nb::module_::import_("warnings").attr("warn")(note.c_str());
  move(device);
}

Device Model::device() const {
  const Turn turn(false);
  return device_;
}

void Model::move(Device to) {
  const Turn turn(true);
  move_now(to);
}

void Model::move_now(Device to) {
  if (to == device_) return;
  if (device_.is_cuda()) {
    const Running running(device_);
    weights_->eager->to_host();
    device_ = Device::cpu();
  }
  if (!to.is_cuda()) return;
  const Running running(to);
  weights_->eager->to_current_device();
  device_ = to;
}

MicroBatch Model::batch_of(const nb::object& input) const {
  const nn::Sequential& model = weights_->model;
  if (model.reads_images()) {
    const Tensor images = copy_of(input, "images");
    check_rank("images", images, 4, "[N, C, H, W]");
    const Shape wanted{images.size(0), model.image_CHW[0], model.image_CHW[1], model.image_CHW[2]};
    if (images.shape() != wanted) throw WrongValue("images: expected " + to_string(wanted) + ", got " + to_string(images.shape()));
    const Running running(Device::cpu(), images.bytes() >= kLongBytes);
    MicroBatch batch = nn::empty_batch(model, images.size(0), 1);
    batch.images_NCHW = converted(images, dtype_);
    return batch;
  }
  const Tensor tokens = whole_numbers(input, "tokens");
  check_rank("tokens", tokens, 2, "[B, T]");
  if (tokens.elems() == 0) throw WrongValue("tokens: expected at least one token, got shape " + to_string(tokens.shape()));
  check_ids(tokens, config_.vocabulary);
  const Running running(Device::cpu(), tokens.bytes() >= kLongBytes);
  MicroBatch batch = nn::empty_batch(model, tokens.size(0), tokens.size(1));
  copy_span<i32>(tokens, batch.tokens_BT);
  const auto positions = batch.positions_BT.span<i32>();
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<i32>(static_cast<i64>(i) % tokens.size(1));
  return batch;
}

void Model::set_targets(MicroBatch& batch, const nb::object& targets) const {
  if (targets.is_none()) {
    if (weights_->model.reads_images()) throw WrongType("targets: expected the images' classes [N], got none");
    shift(batch.tokens_BT, batch.targets_BT);
  } else {
    const Tensor given = whole_numbers(targets, "targets");
    const Tensor& wanted = batch.targets_BT;
    if (given.rank() == 0 || given.elems() != wanted.elems() || given.size(0) != wanted.size(0))
      throw WrongValue("targets: expected shape " + to_string(wanted.shape()) + ", one target for each token or image, got " +
                       to_string(given.shape()));
    copy_span<i32>(given, batch.targets_BT);
  }
  check_targets(batch.targets_BT, config_.vocabulary);
  for (const i32 target : batch.targets_BT.span<i32>()) batch.counted_targets += target >= 0;
  if (batch.counted_targets == 0)
    throw WrongValue("targets: expected at least one target of 0 or above, because only such targets contribute to the loss, got none");
}

std::pair<Variable, std::shared_ptr<Graph>> Model::run(nn::Context& context, MicroBatch& batch, bool training) {
  batch.first_sample = training ? samples_ : 0;
  if (training) samples_ += batch.targets_BT.size(0);
  bring_here(batch);
  std::shared_ptr<Graph> graph;
  if (recording()) {
    graph = current_graph();
    graph->run_model(weights_);
  }
  context.mode = training ? nn::Mode::train : nn::Mode::evaluate;
  context.batch = &batch, context.tape = graph ? &graph->tape() : nullptr, context.random = random_;
  return {as_arguments([&] { return nn::run(weights_->model, context); }), graph};
}

Array Model::forward(const nb::object& input, bool training) {
  MicroBatch batch = batch_of(input);
  for (i32& target : batch.targets_BT.span<i32>()) target = kIgnoredTarget;
  const Turn turn(true);
  const Running running(device_);
  nn::Context context;
  context.all_logits = true;
  const auto [logits, graph] = run(context, batch, training);
  return computed_on(logits, graph);
}

Array Model::generate(const nb::object& input, i64 most, trainer::Sampling sampling, const std::optional<std::vector<i64>>& ends,
                      std::optional<i64> padding) {
  if (!weights_->model.reads_tokens()) throw WrongType("generate: expected a language model, got a model of images");
  if (most < 1) throw WrongValue("max_new_tokens: expected 1 or above, got " + std::to_string(most));
  const MicroBatch prompt = batch_of(input);
  const i64 rows = prompt.tokens_BT.size(0), length = prompt.tokens_BT.size(1);
  if (length + most > config_.positions)
    throw WrongValue("max_new_tokens: expected at most " + std::to_string(std::max<i64>(0, config_.positions - length)) +
                     " after a prompt of " + std::to_string(length) + " tokens, because the model has " +
                     std::to_string(config_.positions) + " positions, got " + std::to_string(most));
  std::vector<std::vector<i32>> texts;
  for (i64 b = 0; b < rows; ++b) {
    const auto row = prompt.tokens_BT.span<i32>().subspan(static_cast<size_t>(b * length), static_cast<size_t>(length));
    texts.emplace_back(row.begin(), row.end());
  }
  const std::vector<i64> last = ends ? *ends : trainer::generation_ends(source_).value_or(config_.end_tokens);
  const i64 filling = padding.value_or(last.empty() ? 0 : last.front());
  const auto is_last = [&](i32 id) { return std::ranges::find(last, id) != last.end(); };
  std::vector<bool> ended(static_cast<size_t>(rows), false);
  const Turn turn(true);
  const Running running(device_, true);
  const Stream host = host_stream();
  nn::KeyValueCache cache(Stream::current(), rows, length + most);
  MicroBatch batch = prompt;
  for (i64 n = 0; n < most && std::ranges::find(ended, false) != ended.end(); ++n) {
    if (n > 0) {
      const StreamScope scope(host);
      batch = nn::empty_batch(weights_->model, rows, 1);
      for (size_t b = 0; b < texts.size(); ++b)
        batch.tokens_BT.span<i32>()[b] = texts[b].back(), batch.positions_BT.span<i32>()[b] = static_cast<i32>(length + n - 1);
    }
    bring_here(batch);
    nn::Context context;
    context.mode = nn::Mode::generate, context.batch = &batch, context.cache = &cache;
    context.logits_position = batch.tokens_BT.size(1) - 1;
    cache.seek(n == 0 ? 0 : length + n - 1);
    const std::vector<double> logits = values_of(as_arguments([&] { return nn::run(weights_->model, context); }).value);
    const size_t vocabulary = logits.size() / texts.size();
    for (size_t b = 0; b < texts.size(); ++b) {
      trainer::Sampling own = sampling;
      own.seed += b;
      texts[b].push_back(ended[b] ? static_cast<i32>(filling)
                                  : trainer::sample_token(std::span(logits).subspan(b * vocabulary, vocabulary), texts[b], own, n));
      ended[b] = ended[b] || is_last(texts[b].back());
    }
  }
  const StreamScope scope(host);
  const Tensor all = empty({rows, std::ssize(texts.front())}, DType::int64, "tokens");
  auto to = all.span<i64>().begin();
  for (const auto& text : texts) to = std::ranges::copy(text, to).out;
  return constant(all);
}

Tokenizer Model::tokenizer() const {
  if (!weights_->model.reads_tokens()) throw WrongType("tokenizer: expected a language model, got a model of images");
  return {trainer::tokenizer_of({}, source_, true)};
}

Array Model::loss(const nb::object& input, const nb::object& targets, bool training) {
  MicroBatch batch = batch_of(input);
  set_targets(batch, targets);
  const Turn turn(true);
  const Running running(device_);
  nn::Context context;
  context.loss_factor = 1.0 / static_cast<double>(batch.counted_targets);
  const auto [sum, graph] = run(context, batch, training);
  // The gradient of the sum already contains the factor 1 / counted targets, so backward passes the gradient on unchanged.
  autograd::Recorder recorder({sum}, "loss");
  const Tensor mean = full({}, sum.value.item() * context.loss_factor, DType::f64);
  const Variable y = recorder.output(mean, [](autograd::Backward& b) { b.pass(0, b.gradient()); });
  return computed_on(y, graph);
}

Array Model::logits(const nb::object& input, std::optional<i64> position) {
  MicroBatch batch = batch_of(input);
  const i64 positions = weights_->model.reads_images() ? 1 : batch.tokens_BT.size(1), at = position.value_or(-1);
  if (at < -positions || at >= positions)
    throw WrongIndex("position: expected the index of one of " + std::to_string(positions) + " positions, got " + std::to_string(at));
  nn::Context context;
  context.mode = nn::Mode::generate;
  context.batch = &batch;
  context.logits_position = at < 0 ? at + positions : at;
  const Turn turn(true);
  const Running running(device_);
  bring_here(batch);
  return constant(as_arguments([&] { return nn::run(weights_->model, context); }).value);
}

Array Model::parameter_now(u32 id) {
  const auto& parameter = weights_->eager->parameters()[id];
  Array array = constant(weights_->eager->memory(id));
  array.leaf = weights_->leaves[id].lock();
  if (!array.leaf) weights_->leaves[id] = array.leaf = std::make_shared<Leaf>(Leaf{{}, weights_, id, parameter->name});
  return array;
}

Array Model::parameter(i64 id) {
  if (id < 0 || id >= parameters())
    throw WrongIndex("parameter: expected the index of one of " + std::to_string(parameters()) + " parameters, got " + std::to_string(id));
  const Turn turn(false);
  return parameter_now(static_cast<u32>(id));
}

Array Model::parameter(const std::string& name) {
  const Turn turn(false);
  return parameter_now(weights_->eager->parameter(name)->id);
}

std::vector<std::string> Model::names() const {
  std::vector<std::string> names;
  for (const auto& parameter : weights_->eager->parameters()) names.push_back(parameter->name);
  return names;
}

void Model::zero_grad() {
  const Turn turn(false);
  weights_->eager->forget();
}

void Model::load(const std::string& name, const nb::object& array, bool share) {
  const auto& parameter = weights_->eager->parameter(name);
  if (!parameter->is_plain())
    throw Error(ErrorCode::usage, "[load] expected a parameter of floating-point numbers, got " + name + ", which is quantized");
  const Tensor values = share ? borrow(array, name.c_str()) : copy_of(array, name.c_str());
  const Turn turn(values.bytes() >= kLongBytes);
  if (share) return weights_->eager->adopt(parameter->id, values);
  const Tensor to = weights_->eager->memory(parameter->id);
  if (values.shape() != to.shape()) throw WrongValue(name + ": expected " + to_string(to.shape()) + ", got " + to_string(values.shape()));
  const Running here;
  const Tensor same = converted(values, to.dtype(), Keep::whole);
  const Running there(device_);
  to.storage()->written();
  if (to.elems() > 0) transfer(to.raw(), same.raw(), to.bytes());
}

void Model::freeze(const std::string& name, bool frozen) {
  const Turn turn(false);
  const auto& parameter = weights_->eager->parameter(name);
  if (parameter->statistic || !parameter->is_plain())
    throw Error(ErrorCode::usage, "[freeze] expected a weight that can be trained, got " + name);
  parameter->frozen = frozen;
}

// Throws an Error unless the folder is new or holds nothing but a saved model, because save() replaces the whole folder.
static void check_replaceable(const std::filesystem::path& folder) {
  if (!std::filesystem::exists(folder)) return;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name == "config.json" || name == "model.safetensors") continue;
    throw Error(ErrorCode::usage, "[save] expected a new folder, or one that save() made, got " + folder.string() + " with " + name +
                                      " in it: give another folder");
  }
}

std::unique_ptr<Weights> Model::copied_to_host() const {
  const Running here;
  auto copy = std::make_unique<Weights>(models::build(config_, dtype_));
  const Running there(device_);
  for (u32 id = 0; id < copy->model.parameters.size(); ++id) {
    const Tensor &from = weights_->eager->memory(id), &to = copy->eager->memory(id);
    if (to.bytes() > 0) transfer(to.raw(), from.raw(), to.bytes());
  }
  return copy;
}

void Model::save(const std::string& folder) const {
  const Turn turn(true);
  check_replaceable(folder);
  const std::unique_ptr<Weights> here = device_.is_cuda() ? copied_to_host() : nullptr;
  const Running running;
  data::AtomicFolder made(folder, data::Existing::replace);
  models::save(here ? here->model : weights_->model, made.path());
  made.write_text("config.json", config_json());
  made.commit();
}

std::string Model::config_json() const { return models::to_json(config_, dtype_); }

std::string Model::describe() const {
  return "Model(" + source_.name + ": " + std::to_string(weights_->model.parameter_elems()) + " parameters in " +
         std::to_string(weights_->model.blocks.size()) + " blocks, " + std::string(to_string(dtype_)) + ")";
}

void bind_model(nb::module_& module) {
  nb::class_<Model>(
      module, "Model",
      "A model in memory, for your own training loop with loss(...).backward() and an optimizer. (Use Trainer for models that do not fit.)")
      .def(
          "__init__",
          [](Model* self, const nb::object& name, const Word& dtype, const Seed& seed, const Flag& from_scratch, const nb::object& device) {
            new (self) Model(path_of(name), dtype_of(dtype), seed, from_scratch, device_of(device));
          },
          nb::arg("name"), nb::kw_only(), nb::arg("dtype") = "f32", nb::arg("seed") = 0, nb::arg("from_scratch") = false,
          nb::arg("device") = "cpu",
          nb::sig("def __init__(self, name: str | os.PathLike, *, dtype: str = \"f32\", seed: int = 0, from_scratch: bool = False, "
                  "device: object = \"cpu\") -> None"),
          "name: a preset (\"gpt2-124m\"), a Hugging Face folder, org/name of the local cache, or a run's folder. Presets, and "
          "from_scratch=True, get new weights drawn with the seed. device: \"cpu\", \"cuda\" or \"cuda:1\".")
      .def_prop_ro(
          "device", [](const Model& self) { return to_string(self.device()); }, "\"cpu\", \"cuda:0\".")
      .def(
          "to", [](Model& self, const nb::object& device) -> Model& { return self.move(device_of(device)), self; }, nb::arg("device"),
          nb::rv_policy::reference, nb::sig("def to(self, device: object) -> Model"),
          "Moves the whole model. Gradients are dropped; make optimizers, and get parameters, after the move.")
      .def(
          "loss",
          [](Model& self, const nb::object& input, const nb::object& targets, const Flag& training) {
            return self.loss(input, targets, training);
          },
          nb::arg("input"), nb::arg("targets") = nb::none(), nb::kw_only(), nb::arg("training") = true,
          nb::sig("def loss(self, input: object, targets: object = None, *, training: bool = True) -> Tensor"),
          "The mean loss in nats, one f64. The input is tokens[B, T], and targets[B, T] are by default the next tokens; negative targets "
          "do not\n"
          "contribute. Image models take images[N, C, H, W] and classes[N]. training=False turns dropout off.")
      .def(
          "_forward", [](Model& self, const nb::object& input, const Flag& training) { return self.forward(input, training); },
          nb::arg("input"), nb::arg("training"))
      .def(
          "_generate",
          [](Model& self, const nb::object& input, const Whole& most, const Real& temperature, const Whole& top_k, const Real& top_p,
             const Real& min_p, const Real& repetition_penalty, const Seed& seed, const std::optional<Wholes>& ends,
             const std::optional<Whole>& padding) {
            const trainer::Sampling sampling{temperature, top_k, top_p, min_p, repetition_penalty, seed};
            return self.generate(input, most, sampling, ends ? std::optional(ends->all()) : std::nullopt,
                                 padding ? std::optional<i64>(*padding) : std::nullopt);
          },
          nb::arg("input"), nb::arg("most"), nb::arg("temperature"), nb::arg("top_k"), nb::arg("top_p"), nb::arg("min_p"),
          nb::arg("repetition_penalty"), nb::arg("seed"), nb::arg("ends").none(), nb::arg("padding").none())
      .def("_tokenizer", &Model::tokenizer)
      .def(
          "logits",
          [](Model& self, const nb::object& input, const std::optional<Whole>& position) {
            return self.logits(input, position ? std::optional<i64>(*position) : std::nullopt);
          },
          nb::arg("input"), nb::arg("position") = nb::none(),
          nb::sig("def logits(self, input: object, position: int | None = None) -> Tensor"),
          "Logits [B, V] at one position of tokens[B, T], by default the last; for images [N, classes]. Not recorded for backward().")
      .def("__len__", &Model::parameters)
      .def(
          "_parameter", [](Model& self, const Whole& id) { return self.parameter(id); }, nb::arg("id"))
      .def(
          "__getitem__", [](Model& self, const Word& name) { return self.parameter(name.text()); }, nb::arg("name"),
          "The parameter with this name, on the model's own memory.")
      .def(
          "_load", [](Model& self, const Word& name, const nb::object& array, const Flag& share) { self.load(name, array, share); },
          nb::arg("name"), nb::arg("array"), nb::arg("share"))
      .def(
          "freeze", [](Model& self, const Word& name, const Flag& frozen) { self.freeze(name, frozen); }, nb::arg("name"),
          nb::arg("frozen") = true, "Freezes a parameter: it gets no gradient, and optimizers made afterwards leave it out.")
      .def("zero_grad", &Model::zero_grad, "Clears all gradients.")
      .def(
          "save", [](const Model& self, const nb::object& folder) { self.save(path_of(folder)); }, nb::arg("folder"),
          nb::sig("def save(self, folder: object) -> None"),
          "Writes a Hugging Face folder (config.json and model.safetensors), completely or not at all.")
      .def("names", &Model::names, "The names of all parameters, as in Hugging Face.")
      .def("_config_json", &Model::config_json)
      .def("__repr__", &Model::describe);
}

}  // namespace spillway::python
