#include "eager/optimizer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <optional>

#include "base/error.h"
#include "data/files/beside.h"
#include "data/safetensors/safetensors.h"
#include "device/memory_pool.h"
#include "device/transfer.h"
#include "eager/checks.h"
#include "eager/square_sum.h"
#include "optim/matrices/orthogonalize.h"
#include "optim/rules/adafactor.h"
#include "optim/rules/gpu.h"
#include "optim/rules/muon.h"
#include "optim/rules/tile.h"
#include "optim/tile_values.h"
#include "tensor/create.h"

namespace spillway::eager {
namespace {

using optim::kTileElems;

constexpr int kMaster = static_cast<int>(optim::StatePart::master), kRows = static_cast<int>(optim::StatePart::rows),
              kColumns = static_cast<int>(optim::StatePart::columns);

i64 tiles_of(i64 elems) { return ceil_div(elems, kTileElems); }

Optimizer::Parameters trained(const nn::EagerParameters& weights) {
  Optimizer::Parameters all;
  std::ranges::copy_if(weights.parameters(), std::back_inserter(all), [](const auto& p) { return !p->frozen; });
  return all;
}

void check_owned(const nn::EagerParameters& weights, const nn::Parameter& parameter) {
  const auto& all = weights.parameters();
  if (parameter.id >= all.size() || all[parameter.id].get() != &parameter)
    throw Error(ErrorCode::usage, "[optimizer] expected parameters of this model, got one of another model: " + parameter.name);
  if (parameter.frozen)
    throw Error(ErrorCode::usage, "[optimizer] expected trainable parameters, got " + parameter.name + ", which is frozen");
}

const std::byte* at(const Tensor& t, i64 bytes) { return t.bytes() > 0 ? t.raw() + bytes : nullptr; }

Tensor on_host(const Tensor& t) { return t.device().is_cuda() ? to_host(t) : t; }

// Returns a CPU stream with the threads of the current stream.
Stream on_cpu() { return {Device::cpu(), Stream::current().threads, &MemoryPool::heap()}; }

// Returns one tile (16,384 elements) of `numbers`, from element `begin` on. Elements beyond the end of `numbers` are zero.
std::array<double, kTileElems> tile_of(const std::vector<double>& numbers, i64 begin) {
  std::array<double, kTileElems> tile{};
  const i64 count = std::min(kTileElems, std::ssize(numbers) - begin);
  std::copy_n(numbers.begin() + begin, count, tile.begin());
  return tile;
}

// Converts an optimizer state to the bytes of `format`. parts[p] holds the numbers of part p for all elements; an empty part means zeros.
void write_state(const optim::StateFormat& format, i64 elems, const std::array<std::vector<double>, 4>& parts, const Tensor& bytes) {
  if (bytes.bytes() == 0) return;
  std::vector<std::byte> host(static_cast<size_t>(bytes.bytes()));  // all zeros at first; the gaps between tiles stay zero
  std::vector<std::byte> weight(static_cast<size_t>(format.weight_tile_bytes()));
  std::array<std::array<double, kTileElems>, 4> tile;
  std::array<std::span<const double>, 4> shown;
  for (i64 t = 0; t < tiles_of(elems); ++t) {
    for (size_t p = 0; p < parts.size(); ++p) {
      if (parts[p].empty()) continue;
      tile[p] = tile_of(parts[p], t * kTileElems);
      shown[p] = tile[p];
    }
    optim::write_tile<double>(format, {shown[0], shown[1], shown[2], shown[3]}, weight.data(), host.data() + t * format.state_tile_bytes());
  }
  transfer(bytes.raw(), host.data(), bytes.bytes());
}

// Returns all factors of Adafactor's state in one list. In the state, each tile holds a part of them. The state must be on the CPU.
std::vector<double> factors_of(const nn::Parameter& parameter, const optim::StateFormat& format, const Tensor& bytes) {
  std::vector<double> all(static_cast<size_t>(tiles_of(parameter.elems()) * format.factors));
  for (i64 t = 0; t < tiles_of(parameter.elems()); ++t) {
    optim::read_factors(format, at(bytes, t * format.state_tile_bytes()), 0,
                        std::span(all).subspan(static_cast<size_t>(t * format.factors), static_cast<size_t>(format.factors)));
  }
  return all;
}

void write_factors(const optim::StateFormat& format, std::vector<double> all, const Tensor& bytes) {
  if (format.factors == 0) return;
  const i64 tiles = bytes.bytes() / format.state_tile_bytes();
  all.resize(static_cast<size_t>(tiles * format.factors));
  for (i64 t = 0; t < tiles; ++t) {
    optim::write_factors(format, std::span(all).subspan(static_cast<size_t>(t * format.factors), static_cast<size_t>(format.factors)),
                         bytes.raw() + t * format.state_tile_bytes());
  }
}

// Computes the matrix that Muon orthogonalizes, tile by tile (16,384 elements), in the gradient's type.
void gather_direction(const optim::StateFormat& format, const Tensor& gradient, const Tensor& state, const optim::Scalars<double>& scalars,
                      bool nesterov, std::byte* out) {
  Stream::current().run(tiles_of(gradient.elems()), [&](i64 t, int) {
    const i64 elems = std::min(kTileElems, gradient.elems() - t * kTileElems);
    const std::byte *g = gradient.raw() + t * format.gradient_tile_bytes(), *s = at(state, t * format.state_tile_bytes());
    const auto gather = [&]<class T>(T* to) { optim::direction_tile(format, g, s, elems, scalars, nesterov, to + t * kTileElems); };
    gradient.dtype() == DType::f64 ? gather(reinterpret_cast<double*>(out)) : gather(reinterpret_cast<float*>(out));
  });
}

double adafactor_factor(const optim::AdafactorStep& step, const Tensor& weight, const Tensor& gradient, const Tensor& state,
                        const optim::Scalars<double>& scalars, const optim::AdafactorSettings& settings) {
  const optim::StateFormat& format = step.format;
  Stream::current().run(tiles_of(step.elems), [&](i64 t, int) {
    optim::adafactor_gather(step, t, gradient.raw() + t * format.gradient_tile_bytes(), weight.raw() + t * format.weight_tile_bytes(),
                            at(state, t * format.state_tile_bytes()), scalars, settings);
  });
  return optim::adafactor_direction(step, scalars, settings);
}

// Returns the name of a parameter's state in a file that holds the states of several optimizers.
std::string name_in_file(size_t optimizer, const nn::Parameter& parameter) {
  return optimizer == 0 ? parameter.name : std::to_string(optimizer) + "." + parameter.name;
}

[[noreturn]] void refuse_file(const std::filesystem::path& file, const std::string& what) {
  throw Error(ErrorCode::data, "[optimizer] " + file.string() + ": " + what);
}

}  // namespace

Optimizer::Optimizer(nn::EagerParameters& weights, const optim::RuleSettings& settings) : Optimizer(weights, settings, trained(weights)) {}

Optimizer::Optimizer(nn::EagerParameters& weights, const optim::RuleSettings& settings, Parameters parameters)
    : weights_(weights),
      settings_(settings),
      parameters_(std::move(parameters)),
      learning_rate_(std::visit([](const auto& s) { return s.lr; }, settings)),
      states_(parameters_.size()) {
  check_settings(settings_);
  check_once(parameters_);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    check_owned(weights_, *parameters_[i]);
    begin(*parameters_[i], states_[i]);
  }
}

// A step moves a running statistic by a fraction of the way towards the mean of its gradients over the backward
// passes. That equals SGD with the mean as the gradient, a negative learning rate and a weight decay of -1.
optim::RuleSettings Optimizer::rule_for(const nn::Parameter& parameter) const {
  if (parameter.statistic) return optim::SgdSettings{.lr = -nn::kStatisticMomentum, .weight_decay = -1};
  return parameter.is_matrix() ? settings_ : beside_matrices(settings_);
}

void Optimizer::begin(const nn::Parameter& parameter, State& state) const {
  const optim::RuleSettings rule = rule_for(parameter);
  state.format = {.weight = parameter.dtype, .gradient = wide_dtype(parameter.dtype), .rule = optim::rule_of(rule)};
  if (state.format.rule == optim::Rule::adafactor && parameter.shape.rank() >= 2)
    state.format = state.format.factored(optim::factors_a_tile(optim::matrices_of(parameter.shape), parameter.elems()));
  state.format.check();
  std::array<std::vector<double>, 4> parts;
  parts[kMaster] = values_of(parameter.value());
  const Stream cpu = on_cpu(), &there = steps_wholes(state.format.rule) ? cpu : Stream::current();
  const StreamScope scope(there);
  state.bytes = empty({tiles_of(parameter.elems()) * state.format.state_tile_bytes()}, DType::uint8, "optimizer state");
  if (const auto* adagrad = std::get_if<optim::AdagradSettings>(&rule))
    parts[1].assign(static_cast<size_t>(parameter.elems()), adagrad->initial_accumulator_value);
  write_state(state.format, parameter.elems(), parts, state.bytes);
}

void Optimizer::step(double gradient_scale) {
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Tensor gradient = weights_.gradient(parameters_[i]->id);
    if (!gradient.defined()) continue;
    ++states_[i].steps;
    const bool mean = parameters_[i]->statistic;
    const double scale = mean ? 1 / static_cast<double>(weights_.passes(parameters_[i]->id)) : gradient_scale;
    const Tensor value = parameters_[i]->value();
    value.storage()->written();
    if (!steps_wholes(states_[i].format.rule) || !value.device().is_cuda()) {
      update(*parameters_[i], gradient, value, states_[i], scale);
      continue;
    }
    const Tensor g = to_host(gradient), w = to_host(value);
    const Stream cpu = on_cpu();
    {
      const StreamScope scope(cpu);
      update(*parameters_[i], g, w, states_[i], scale);
    }
    transfer(value.raw(), w.raw(), w.bytes());
  }
}

// Updates whole tiles (16,384 elements) in place. The remaining elements are copied to a separate tile, which is filled up with zeros.
void Optimizer::update(const nn::Parameter& parameter, const Tensor& gradient, const Tensor& value, State& state,
                       double gradient_scale) const {
  const optim::StateFormat& format = state.format;
  const optim::RuleSettings rule = rule_for(parameter);
  const double rate = parameter.statistic ? -nn::kStatisticMomentum : learning_rate_;
  auto scalars = optim::make_scalars(rule, rate, weight_decay_of(rule), state.steps, gradient_scale);
  Tensor memory;
  const std::byte* direction = nullptr;
  std::optional<optim::AdafactorStep> adafactor;
  if (is_of_parameters(format.rule)) {
    const optim::Matrices matrices = optim::matrices_of(parameter.shape);
    memory = zeros({optim::adafactor_bytes(matrices, parameter.elems(), gradient.dtype())}, DType::uint8, "optimizer scratch");
    adafactor.emplace(format, matrices, parameter.elems(), memory.raw());
    scalars.step_size *= adafactor_factor(*adafactor, value, gradient, state.bytes, scalars, std::get<optim::AdafactorSettings>(rule));
    direction = memory.raw();
  }
  if (is_of_matrices(format.rule)) {
    const i64 rows = parameter.shape[0], columns = parameter.shape[1];
    scalars.step_size *= matrix_scale(rule, rows, columns);
    memory = zeros({optim::orthogonalize_bytes(rows, columns, gradient.dtype())}, DType::uint8, "optimizer scratch");
    gather_direction(format, gradient, state.bytes, scalars, std::get<optim::MuonSettings>(rule).nesterov, memory.raw());
    direction = optim::orthogonalize(memory.raw(), rows, columns, gradient.dtype());
  }
  const auto update = [&](const std::byte* g, std::byte* w, i64 first, i64 tiles, i64 elems) {
    std::vector<optim::TilePart> parts{{elems, &scalars}};
    if (elems < tiles * kTileElems) parts.push_back({tiles * kTileElems, nullptr});
    auto* s = const_cast<std::byte*>(at(state.bytes, first * format.state_tile_bytes()));
    if (gradient.device().is_cuda()) return optim::update_tiles_on_gpu(format, {g, w, s, w, s}, tiles, parts, {});
    if (tiles > 1) parts = {{kTileElems, &scalars}};
    Stream::current().run(tiles, [&](i64 t, int) {
      std::byte *wt = w + t * format.weight_tile_bytes(), *st = s ? s + t * format.state_tile_bytes() : nullptr;
      const std::byte* dt = direction ? direction + (first + t) * format.gradient_tile_bytes() : nullptr;
      optim::update_tile(format, {g + t * format.gradient_tile_bytes(), wt, st, wt, st, dt}, parts, {});
      if (format.factors > 0) optim::put_factors(*adafactor, first + t, st);
    });
  };
  const i64 whole = value.elems() / kTileElems, rest = value.elems() % kTileElems;
  if (whole > 0) update(gradient.raw(), value.raw(), 0, whole, whole * kTileElems);
  if (rest == 0) return;
  const Tensor g = zeros({kTileElems}, gradient.dtype(), "optimizer scratch"), w = zeros({kTileElems}, value.dtype(), "optimizer scratch");
  const i64 rest_bytes = rest * size_of(value.dtype());
  std::byte* const last = value.raw() + whole * format.weight_tile_bytes();
  put_transfer(g.raw(), gradient.raw() + whole * format.gradient_tile_bytes(), rest * size_of(gradient.dtype()));
  put_transfer(w.raw(), last, rest_bytes);
  update(g.raw(), w.raw(), whole, 1, rest);
  transfer(last, w.raw(), rest_bytes);
}

void Optimizer::set_learning_rate(double rate) {
  check_learning_rate(rate);
  learning_rate_ = rate;
}

void Optimizer::set_settings(const optim::RuleSettings& settings) {
  check_settings(settings);
  const optim::Rule before = optim::rule_of(settings_), after = optim::rule_of(settings);
  if (before != after)
    throw Error(ErrorCode::usage, std::string("[optimizer] expected settings of ") + optim::to_string(before) + ", got settings of " +
                                      optim::to_string(after) + ", which keeps another state: make another optimizer");
  settings_ = settings;
  learning_rate_ = std::visit([](const auto& s) { return s.lr; }, settings);
}

void Optimizer::zero_grad() {
  for (const auto& parameter : parameters_) weights_.forget(parameter->id);
}

double Optimizer::gradient_norm() const {
  std::vector<Tensor> gradients;
  for (const auto& parameter : parameters_) {
    const Tensor gradient = weights_.gradient(parameter->id);
    if (gradient.defined() && !parameter->statistic) gradients.push_back(gradient);
  }
  return std::sqrt(square_sum(gradients));
}

std::vector<Optimizer::Part> Optimizer::parts_of(const nn::Parameter& parameter, const State& state) const {
  const DType dtype = wide_dtype(state.format.weight);
  std::vector<Part> parts;
  if (!state.format.update_reads_weight()) parts.push_back({"master", kMaster, dtype, parameter.shape});
  const auto names = optim::state_array_names(state.format.rule);
  for (int k = 0; k < optim::state_arrays(state.format.rule); ++k)
    parts.push_back({names[static_cast<size_t>(k)].torch, static_cast<int>(optim::array_part(k)), dtype, parameter.shape});
  if (state.format.factors > 0) {
    parts.push_back({"row_var", kRows, dtype, optim::row_factors_shape(parameter.shape)});
    parts.push_back({"col_var", kColumns, dtype, optim::column_factors_shape(parameter.shape)});
  }
  return parts;
}

Optimizer::ParameterState Optimizer::state(size_t index) const {
  const nn::Parameter& parameter = *parameters_.at(index);
  const State& state = states_[index];
  const Tensor bytes = on_host(state.bytes);
  const Tensor weights = state.format.update_reads_weight() ? on_host(parameter.value()) : Tensor();
  const Stream cpu = on_cpu();
  const StreamScope scope(cpu);
  ParameterState result{state.steps, {}};
  for (const Part& part : parts_of(parameter, state)) {
    const Tensor values = empty(part.shape, part.dtype, "optimizer state");
    result.parts.emplace_back(part.name, values);
    const auto read = [&]<class T>(std::span<T> out) {
      if (part.number == kRows || part.number == kColumns) {
        const std::vector<double> all = factors_of(parameter, state.format, bytes);
        const i64 rows = optim::matrices_of(parameter.shape).row_factors();
        std::copy_n(all.begin() + (part.number == kRows ? 0 : rows), out.size(), out.begin());
        return;
      }
      for (i64 begin = 0; begin < parameter.elems(); begin += kTileElems) {
        const i64 count = std::min(kTileElems, parameter.elems() - begin), tile = begin / kTileElems;
        optim::read_part<T>(state.format, static_cast<optim::StatePart>(part.number),
                            weights.defined() ? weights.raw() + begin * size_of(weights.dtype()) : nullptr,
                            at(bytes, tile * state.format.state_tile_bytes()), 0,
                            out.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)));
      }
    };
    part.dtype == DType::f64 ? read(values.span<double>()) : read(values.span<float>());
  }
  return result;
}

void Optimizer::set_state(size_t index, const ParameterState& given) {
  const nn::Parameter& parameter = *parameters_.at(index);
  State& state = states_[index];
  const std::vector<Part> wanted = parts_of(parameter, state);
  if (given.steps < 0)
    throw Error(ErrorCode::usage,
                "[optimizer] " + parameter.name + ": expected a number of steps of 0 or above, got " + std::to_string(given.steps));
  std::array<std::vector<double>, 4> parts;
  parts[kMaster] = values_of(parameter.value());  // the weight's values serve as master weights if these are not part of the state
  std::vector<double> factors;
  for (const Part& part : wanted) {
    const auto found = std::ranges::find(given.parts, part.name, [](const auto& one) { return one.first; });
    if (found == given.parts.end() || found->second.shape() != part.shape)
      throw Error(ErrorCode::usage, "[optimizer] " + parameter.name + ": expected the state " + part.name + " of shape " +
                                        to_string(part.shape) + ", got " +
                                        (found == given.parts.end() ? "none" : to_string(found->second.shape())));
    std::vector<double> read = values_of(found->second);
    if (part.number == kRows || part.number == kColumns)
      factors.insert(factors.end(), read.begin(), read.end());
    else
      parts[static_cast<size_t>(part.number)] = std::move(read);
  }
  const Stream cpu = on_cpu(), &there = state.bytes.device().is_cuda() ? Stream::current() : cpu;
  const StreamScope scope(there);
  write_state(state.format, parameter.elems(), parts, state.bytes);
  write_factors(state.format, std::move(factors), state.bytes);
  state.steps = given.steps;
}

std::string Optimizer::rules_of(const std::vector<const Optimizer*>& optimizers) {
  std::string rules;
  for (const Optimizer* optimizer : optimizers)
    rules += (rules.empty() ? "" : ",") + std::string(optim::to_string(optim::rule_of(optimizer->settings_)));
  return rules;
}

void Optimizer::save_all(const std::filesystem::path& file, const std::vector<const Optimizer*>& optimizers) {
  std::vector<data::TensorInfo> tensors;
  std::map<std::string, std::string> metadata{{"rule", rules_of(optimizers)}};
  for (size_t o = 0; o < optimizers.size(); ++o) {
    const Optimizer& optimizer = *optimizers[o];
    for (size_t i = 0; i < optimizer.parameters_.size(); ++i) {
      const std::string name = name_in_file(o, *optimizer.parameters_[i]);
      metadata[name + ".step"] = std::to_string(optimizer.states_[i].steps);
      for (const Part& part : optimizer.parts_of(*optimizer.parameters_[i], optimizer.states_[i]))
        tensors.push_back({name + "." + part.name, part.dtype, part.shape});
    }
  }
  data::Beside beside(file, data::Beside::Kind::file, data::Existing::overwrite);
  data::SafetensorsWriter writer(beside.path(), std::move(tensors), metadata);
  auto info = writer.tensors().begin();
  for (const Optimizer* optimizer : optimizers) {
    for (size_t i = 0; i < optimizer->parameters_.size(); ++i) {
      for (const auto& [name, values] : optimizer->state(i).parts)
        writer.write(*info++, 0, {values.raw(), static_cast<size_t>(values.bytes())});
    }
  }
  writer.finish();
  beside.put_in_place();
}

void Optimizer::load_all(const std::filesystem::path& file, const std::vector<Optimizer*>& optimizers) {
  const data::SafetensorsReader reader(file);
  const auto metadata = [&](const std::string& key) {
    const auto found = reader.metadata().find(key);
    return found == reader.metadata().end() ? "none" : found->second;
  };
  const std::string rules = rules_of({optimizers.begin(), optimizers.end()});
  if (metadata("rule") != rules) refuse_file(file, "expected optimizer state of " + rules + ", got state of " + metadata("rule"));
  size_t expected = 0;
  std::vector<i64> steps;
  for (size_t o = 0; o < optimizers.size(); ++o) {
    const Optimizer& optimizer = *optimizers[o];
    for (size_t i = 0; i < optimizer.parameters_.size(); ++i) {
      const std::string own = name_in_file(o, *optimizer.parameters_[i]), count = metadata(own + ".step");
      i64 number = -1;
      const auto [end, error] = std::from_chars(count.data(), count.data() + count.size(), number);
      if (error != std::errc() || end != count.data() + count.size() || number < 0)
        refuse_file(file, "expected a whole number of 0 or above as the number of steps of " + own + ", got " + count);
      steps.push_back(number);
      for (const Part& part : optimizer.parts_of(*optimizer.parameters_[i], optimizer.states_[i])) {
        const std::string name = own + "." + part.name;
        const data::TensorInfo* info = reader.find(name);
        if (!info || !info->foreign.empty() || !(info->shape == part.shape) || info->dtype != part.dtype) {
          refuse_file(file, "expected " + name + ", " + std::string(to_string(part.dtype)) + " " + to_string(part.shape) + ", got " +
                                (info ? std::string(to_string(info->dtype)) + " " + to_string(info->shape) : "none"));
        }
        ++expected;
      }
    }
  }
  if (reader.tensors().size() != expected)
    refuse_file(file, "expected " + std::to_string(expected) + " tensors, got " + std::to_string(reader.tensors().size()) +
                          ": the file also holds state of other parameters");
  auto next = steps.begin();
  for (size_t o = 0; o < optimizers.size(); ++o) {
    Optimizer& optimizer = *optimizers[o];
    for (size_t i = 0; i < optimizer.parameters_.size(); ++i) {
      const nn::Parameter& parameter = *optimizer.parameters_[i];
      ParameterState state{*next++, {}};
      const Stream cpu = on_cpu();
      for (const Part& part : optimizer.parts_of(parameter, optimizer.states_[i])) {
        const Tensor values = [&] {
          const StreamScope scope(cpu);
          return empty(part.shape, part.dtype, "optimizer state");
        }();
        reader.read(*reader.find(name_in_file(o, parameter) + "." + part.name), 0, {values.raw(), static_cast<size_t>(values.bytes())});
        state.parts.emplace_back(part.name, values);
      }
      optimizer.set_state(i, state);
    }
  }
}

}  // namespace spillway::eager
