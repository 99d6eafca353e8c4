#include "tests/models/support_reference.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "models/model.h"
#include "models/weights.h"
#include "tests/support/fixtures.h"

namespace spillway::test {
namespace {

template <class T>
std::vector<T> read(const data::SafetensorsReader& reader, const std::string& name) {
  const data::TensorInfo* info = reader.find(name);
  if (!info || info->dtype != DTypeOf<T>::value) throw std::runtime_error("no such reference: " + name);
  std::vector<T> values(static_cast<size_t>(info->shape.elems()));
  reader.read(*info, 0, std::as_writable_bytes(std::span(values)));
  return values;
}

// Turns dropout off, whatever config.json says, since the reference runs had none.
models::ModelConfig undropped(models::ModelConfig config) {
  config.embedding_dropout = config.residual_dropout = config.attention_dropout = 0;
  return config;
}

Tensor tensor(const std::vector<i32>& values, const Shape& shape) { return tensor_of<i32>(values, shape); }

}  // namespace

Reference::Reference(const std::string& model, DType dtype)
    : reader_(test::data(model) / (dtype == DType::f64 ? "reference_f64.safetensors" : "reference.safetensors")) {}

std::vector<double> Reference::values(const std::string& name) const {
  const data::TensorInfo* info = reader_.find(name);
  if (info && info->dtype == DType::f64) return read<double>(reader_, name);
  const std::vector<float> narrow = read<float>(reader_, name);
  return {narrow.begin(), narrow.end()};
}

Tensor Reference::ids(const std::string& name, i64 first_row, i64 rows) const {
  const std::vector<i64> wide = read<i64>(reader_, name);
  const i64 columns = reader_.find(name)->shape[-1], all = static_cast<i64>(wide.size()) / columns;
  const i64 taken = rows < 0 ? all : rows;
  const auto first = wide.begin() + first_row * columns;
  return tensor({first, first + taken * columns}, {taken, columns});
}

MicroBatch Reference::batch(const std::string& ids_name, const std::string& labels_name, i64 first_row, i64 rows) const {
  MicroBatch batch;
  batch.tokens_BT = ids(ids_name, first_row, rows);
  const Tensor labels = ids(labels_name, first_row, rows);
  const i64 B = labels.size(0), T = labels.size(1);
  std::vector<i32> targets, positions;
  for (i64 i = 0; i < B * T; ++i) {
    const bool last = i % T == T - 1;
    targets.push_back(last ? kIgnoredTarget : labels.data<i32>()[i + 1]);
    positions.push_back(static_cast<i32>(i % T));
    batch.counted_targets += targets.back() >= 0;
  }
  batch.targets_BT = tensor(targets, {B, T});
  batch.positions_BT = tensor(positions, {B, T});
  return batch;
}

Eager::Eager(const std::string& name, DType dtype) : Eager(name, models::read_config(test::data(name)), dtype) {}

Eager::Eager(const std::string& name, const models::ModelConfig& of, DType dtype)
    : config(undropped(of)), model(models::build(config, dtype)), weights(model) {
  models::fill(model, models::FolderWeights(model, test::data(name)));
}

double Eager::backward(const MicroBatch& batch, double loss_factor) {
  autograd::Tape tape(&weights);
  nn::Context context;
  context.batch = &batch;
  context.tape = &tape;
  context.loss_factor = loss_factor;
  const nn::Variable loss = nn::run(model, context);
  loss.backward();
  return loss.value.item();
}

std::vector<double> Eager::logits(const MicroBatch& batch, i64 position) {
  nn::Context context;
  context.mode = nn::Mode::generate;
  context.batch = &batch;
  context.logits_position = position;
  return as_doubles(nn::run(model, context).value);
}

std::vector<double> Eager::gradient(const std::string& parameter) const {
  for (const auto& p : model.parameters) {
    if (p->name == parameter) return as_doubles(weights.gradient(p->id));
  }
  throw std::runtime_error("no such parameter: " + parameter);
}

std::vector<double> as_doubles(const Tensor& t) {
  if (!t.defined()) return {};
  if (t.dtype() == DType::f64) return {t.span<double>().begin(), t.span<double>().end()};
  return {t.span<float>().begin(), t.span<float>().end()};
}

double worst_excess(const std::vector<double>& got, const std::vector<double>& want, double absolute, double relative) {
  double worst = -std::numeric_limits<double>::infinity();
  if (got.size() != want.size() || got.empty()) return -worst;
  for (size_t i = 0; i < got.size(); ++i) {
    const double excess = std::abs(got[i] - want[i]) - (absolute + relative * std::abs(want[i]));
    if (!std::isfinite(excess)) return std::numeric_limits<double>::infinity();
    worst = std::max(worst, excess);
  }
  return worst;
}

}  // namespace spillway::test
