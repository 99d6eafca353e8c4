// Emulates cuDNN's graph API for graphs of matmul, pointwise, reduction and reshape, executed operation by operation. Numbers are
// those of cudnn_graph.h 9; see also the Developer Guide, "Backend Descriptor Types". SPILLWAY_EMULATED_CUDNN is a list of words:
//   old       the version is too old; newer: a version that numbers its engines in another order
//   reversed  heuristics prefer another engine
//   refusing  there are no more engines
//   large     engines want more workspace than any known one
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "work.h"

namespace emulated_cuda {
namespace {

enum Status { success = 0, not_initialized = 1001, bad_param = 2000, not_supported = 3000, execution_failed = 5000 };
enum Kind { engine = 2, config = 3, heuristics = 4, plan = 5, knob = 7, graph = 15, pack = 16, tensor = 17 };
enum Data { f32 = 0, f16 = 2, int32 = 4, bf16 = 9, boolean = 11 };

bool says(const char* word) {
  const char* text = std::getenv("SPILLWAY_EMULATED_CUDNN");
  return text && std::string(text).find(word) != std::string::npos;
}

struct Object;
using Part = std::shared_ptr<Object>;

struct Object {
  int kind = 0;
  bool finished = false;
  std::map<int, std::vector<std::int64_t>> numbers;  // the attributes that are numbers, enumerators, flags or pointers
  std::map<int, std::vector<Part>> parts;

  std::int64_t number(int attribute) const { return numbers.at(attribute).at(0); }
  std::int64_t number_or(int attribute, std::int64_t other) const { return numbers.contains(attribute) ? number(attribute) : other; }
  const Object& part(int attribute) const { return *parts.at(attribute).at(0); }
  bool has(int attribute) const { return parts.contains(attribute); }
};
struct Descriptor {
  Part object;
};
struct Handle {
  cudaStream_t stream = nullptr;
};

thread_local std::string last_error;
int refuse(Status status, const std::string& why) {
  last_error = why;
  return status;
}

// Returns the bytes of an element of an attribute of this type, or 0 for a descriptor.
int size_of_type(int type) {
  switch (type) {
    case 15:
      return 0;
    case 2:   // the boolean type
    case 24:  // the char type
      return 1;
    case 0:
    case 3:
    case 5:
    case 6:
      return 8;
    default:
      return 4;
  }
}

using Extents = std::array<std::int64_t, 4>;
Extents four(const std::vector<std::int64_t>& v) { return {v.at(0), v.at(1), v.at(2), v.at(3)}; }

// Holds a tensor during execution: contiguous, with each element as a float.
struct Values {
  Extents extents;
  std::vector<float> at;
  explicit Values(const Extents& e) : extents(e), at(static_cast<size_t>(e[0] * e[1] * e[2] * e[3])) {}
  // Returns an element. Axes of size 1 are broadcast. With fewer heads than `heads`, each head stands for a group of heads.
  float& operator()(std::int64_t b, std::int64_t h, std::int64_t i, std::int64_t j, std::int64_t heads) {
    const Extents& e = extents;
    const std::int64_t own_h = e[1] == 1 ? 0 : h / (heads / e[1]);
    return at[static_cast<size_t>((((e[0] == 1 ? 0 : b) * e[1] + own_h) * e[2] + (e[2] == 1 ? 0 : i)) * e[3] + (e[3] == 1 ? 0 : j))];
  }
};

float rounded(float x, std::int64_t type) {
  if (type == bf16) {
    const auto bits = std::bit_cast<std::uint32_t>(x);
    return std::isnan(x) ? x : std::bit_cast<float>((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u);
  }
  return type == f16 ? static_cast<float>(static_cast<_Float16>(x)) : x;
}

template <class F>
void for_all(const Extents& e, F f) {
  for (std::int64_t b = 0; b < e[0]; ++b)
    for (std::int64_t h = 0; h < e[1]; ++h)
      for (std::int64_t i = 0; i < e[2]; ++i)
        for (std::int64_t j = 0; j < e[3]; ++j) f(b, h, i, j);
}

// Executes a graph of operations on the CPU, once.
class Execution {
 public:
  Execution(const Object& of, bool downwards) : graph_(of), downwards_(downwards) {}
  void give(std::int64_t id, const void* pointer) { pointers_[id] = pointer; }
  bool has(std::int64_t id) const { return pointers_.contains(id); }
  // Stores a number that is passed by value, which is read when the work is put on the stream.
  void give_number(std::int64_t id, float value) { numbers_[id] = value; }

  void run() {
    for (const Part& operation : graph_.parts.at(801)) {
      const Object& o = *operation;
      if (o.kind == 13) pointwise(o);
      if (o.kind == 19) multiply(o);
      if (o.kind == 22) reduce(o);
      if (o.kind == 31) turn(o);
    }
  }

 private:
  Values& value(const Object& t) {
    const std::int64_t id = t.number(906);
    if (const auto known = values_.find(id); known != values_.end()) return turned_as(known->second, t);
    Values v(four(t.numbers.at(902)));
    if (t.number_or(908, 0)) {
      v.at[0] = numbers_.at(id);
    } else {
      const Extents strides = four(t.numbers.at(903));
      const std::int64_t type = t.number(901);
      size_t n = 0;
      for_all(v.extents, [&](auto b, auto h, auto i, auto j) {
        v.at[n++] = load(pointers_.at(id), type, b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3]);
      });
    }
    return values_.emplace(id, std::move(v)).first->second;
  }
  static Values& turned_as(Values& v, const Object& t) {
    if (v.extents != four(t.numbers.at(902))) throw std::runtime_error("one id for tensors of two shapes");
    return v;
  }
  void result(const Object& t, Values v) {
    const std::int64_t id = t.number(906), type = t.number(901);
    if (v.extents != four(t.numbers.at(902))) throw std::runtime_error("a result of another shape");
    for (float& x : v.at) x = rounded(x, type);
    if (!t.number(907)) {
      const Extents strides = four(t.numbers.at(903));
      size_t n = 0;
      for_all(v.extents, [&](auto b, auto h, auto i, auto j) {
        store(const_cast<void*>(pointers_.at(id)), type, b * strides[0] + h * strides[1] + i * strides[2] + j * strides[3], v.at[n++]);
      });
    }
    values_.insert_or_assign(id, std::move(v));
  }
  static float load(const void* at, std::int64_t type, std::int64_t n) {
    if (type == f32) return static_cast<const float*>(at)[n];
    if (type == f16) return static_cast<float>(static_cast<const _Float16*>(at)[n]);
    if (type == bf16) return std::bit_cast<float>(static_cast<std::uint32_t>(static_cast<const std::uint16_t*>(at)[n]) << 16);
    throw std::runtime_error("a type that cannot be loaded");
  }
  static void store(void* at, std::int64_t type, std::int64_t n, float x) {
    if (type == f32) {
      static_cast<float*>(at)[n] = x;
    } else {
      static_cast<std::uint16_t*>(at)[n] = type == f16 ? std::bit_cast<std::uint16_t>(static_cast<_Float16>(x))
                                                       : static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16);
    }
    memory_written(static_cast<char*>(at) + n * (type == f32 ? 4 : 2), type == f32 ? 4 : 2);
  }

  void pointwise(const Object& o) {
    const Object& how = o.part(750);
    const std::int64_t mode = how.number(0);
    Values& x = value(o.part(751));
    Values* b = o.has(752) ? &value(o.part(752)) : nullptr;
    Values* t = o.has(758) ? &value(o.part(758)) : nullptr;
    Values y(four(o.part(753).numbers.at(902)));
    const std::int64_t heads = y.extents[1];
    size_t n = 0;
    for_all(y.extents, [&](auto at_b, auto h, auto i, auto j) {
      const float one = x(at_b, h, i, j, heads), other = b ? (*b)(at_b, h, i, j, heads) : 0;
      y.at[n++] = mode == 0     ? one + other
                  : mode == 1   ? one * other
                  : mode == 6   ? one / other
                  : mode == 9   ? one - other
                  : mode == 13  ? std::exp(one)
                  : mode == 15  ? std::log(one)
                  : mode == 21  ? one
                  : mode == 303 ? static_cast<float>(one >= other)
                  : mode == 501 ? static_cast<float>(how.number(9) == 2 ? i : j)
                  : mode == 601 ? ((*t)(at_b, h, i, j, heads) != 0 ? one : other)
                                : throw std::runtime_error("a pointwise mode that is not emulated");
    });
    result(o.part(753), std::move(y));
  }
  void reduce(const Object& o) {
    const bool max = o.part(1612).number(1600) == 3;
    Values& x = value(o.part(1610));
    Values y(four(o.part(1611).numbers.at(902)));
    std::ranges::fill(y.at, max ? -std::numeric_limits<float>::infinity() : 0.0f);
    size_t n = 0;
    for_all(x.extents, [&](auto b, auto h, auto i, auto j) {
      float& sum = y(b, h, i, j, x.extents[1]);
      sum = max ? std::max(sum, x.at[n]) : sum + x.at[n];
      ++n;
    });
    result(o.part(1611), std::move(y));
  }
  // Multiplies two matrices. An engine with `downwards_` adds in the reverse order, as another kernel might.
  void multiply(const Object& o) {
    Values &a = value(o.part(1520)), &b = value(o.part(1521));
    Values c(four(o.part(1522).numbers.at(902)));
    const std::int64_t inner = a.extents[3], heads = a.extents[1];
    if (b.extents[2] != inner || b.extents[3] != c.extents[3] || a.extents[2] != c.extents[2])
      throw std::runtime_error("matrices that do not match");
    size_t n = 0;
    for_all(c.extents, [&](auto at_b, auto h, auto i, auto j) {
      float sum = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        const std::int64_t at = downwards_ ? inner - 1 - k : k;
        sum += a(at_b, h, i, at, heads) * b(at_b, h, at, j, heads);
      }
      c.at[n++] = sum;
    });
    result(o.part(1522), std::move(c));
  }
  // Exchanges the last two axes of a tensor, as a reshape with other strides does.
  void turn(const Object& o) {
    Values& x = value(o.part(2200));
    const Extents& e = x.extents;
    Values y({e[0], e[1], e[3], e[2]});
    size_t n = 0;
    for_all(y.extents, [&](auto b, auto h, auto i, auto j) { y.at[n++] = x(b, h, j, i, e[1]); });
    result(o.part(2201), std::move(y));
  }

  const Object& graph_;
  const bool downwards_;
  std::map<std::int64_t, const void*> pointers_;
  std::map<std::int64_t, float> numbers_;
  std::map<std::int64_t, Values> values_;
};

// Calls f for every tensor that an operation of the graph reads or writes.
template <class F>
void for_tensors(const Object& of, F f) {
  for (const Part& operation : of.parts.at(801))
    for (const auto& [name, parts] : operation->parts)
      for (const Part& part : parts)
        if (part->kind == tensor) f(*part);
}

// Returns whether a graph is a backward pass. Only backward graphs contain a reshape.
bool is_backward(const Object& of) {
  return std::ranges::any_of(of.parts.at(801), [](const Part& o) { return o->kind == 31; });
}

struct Choice {
  std::int64_t index, knob_value;
};
constexpr std::int64_t kKnob = 24;
std::vector<Choice> choices(const Object& of) {
  std::vector<Choice> all = is_backward(of) ? std::vector<Choice>{{6, 26}, {7, 26}} : std::vector<Choice>{{2, 7}, {1, 6}};
  if (says("reversed")) std::ranges::reverse(all);
  return all;
}

std::int64_t up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

// Returns the result of a graph's first matrix product.
const Object& scores_of(const Object& of) {
  return (*std::ranges::find(of.parts.at(801), 19, [](const Part& o) { return o->kind; }))->part(1522);
}

// Returns the workspace bytes that cuDNN 9.19 reports for Hopper.
std::int64_t workspace_bytes(const Object& of) {
  std::int64_t bytes = 256;
  if (is_backward(of)) {
    const Extents scores = four(scores_of(of).numbers.at(902));
    bytes += 2 * scores[0] * scores[1] * up(scores[2], 64) * up(scores[3], 128);
    for (const Part& o : of.parts.at(801)) {
      if (o->kind != 22 || o->part(1611).number(907)) continue;  // only reductions whose result the caller does not get need workspace
      const Extents e = four(o->part(1610).numbers.at(902));
      bytes += 2 * e[0] * e[1] * e[2] * e[3];
    }
  }
  return says("large") ? 2 * bytes + (1 << 20) : bytes;
}

const Object& graph_of(const Object& of_plan) { return of_plan.part(401).part(300).part(1300); }

Part make(int kind) { return std::make_shared<Object>(Object{kind, false, {}, {}}); }

Part config_of(const Part& of, const Choice& choice) {
  const Part made = make(config), one = make(engine), setting = make(knob);
  one->parts[1300] = {of}, one->numbers[1301] = {choice.index};
  setting->numbers[600] = {kKnob}, setting->numbers[601] = {choice.knob_value};
  made->parts[300] = {one}, made->parts[302] = {setting};
  made->finished = one->finished = setting->finished = true;
  return made;
}

bool is_complete(const Object& o) {
  const auto numbers = [&](std::initializer_list<int> names) {
    return std::ranges::all_of(names, [&](int name) { return o.numbers.contains(name); });
  };
  const auto parts = [&](std::initializer_list<int> names) {
    return std::ranges::all_of(names, [&](int name) {
      return o.parts.contains(name) && std::ranges::all_of(o.parts.at(name), [](const Part& p) { return p->finished; });
    });
  };
  switch (o.kind) {
    case 0:
      return numbers({0, 1}) && (o.number(0) != 501 || numbers({9}));
    case tensor:
      return numbers({900, 901, 902, 903, 906, 907}) && o.numbers.at(902).size() == 4 && o.numbers.at(903).size() == 4;
    case 13:
      return parts({750, 751, 753}) && (o.part(750).number(0) != 601 || parts({752, 758}));
    case 18:
      return numbers({1500});
    case 19:
      return parts({1520, 1521, 1522, 1523});
    case 21:
      return numbers({1600, 1601});
    case 22:
      return parts({1610, 1611, 1612});
    case 31:
      return parts({2200, 2201});
    case graph:
      return parts({801}) && numbers({800});
    case heuristics:
      return parts({201}) && numbers({200});
    case engine:
      return parts({1300}) && numbers({1301});
    case knob:
      return numbers({600, 601});
    case config:
      return parts({300});
    case plan:
      return parts({401}) && numbers({400});
    case pack:
      return numbers({1000, 1001, 1003});
  }
  return false;
}

// Returns whether the library has the configuration's engine with its knobs.
bool is_known(const Object& of_config) {
  const Object& one = of_config.part(300);
  const auto all = choices(one.part(1300));
  const auto found = std::ranges::find(all, one.number(1301), &Choice::index);
  if (found == all.end() || !of_config.has(302) || says("refusing")) return false;
  const Object& setting = of_config.part(302);
  return setting.number(600) == kKnob && setting.number(601) == found->knob_value;
}

}  // namespace
}  // namespace emulated_cuda

using namespace emulated_cuda;

extern "C" {

size_t cudnnGetVersion() { return says("old") ? 91500 : says("newer") ? 92000 : 91900; }
const char* cudnnGetErrorString(int status) {
  switch (status) {
    case success:
      return "CUDNN_STATUS_SUCCESS";
    case not_initialized:
      return "CUDNN_STATUS_NOT_INITIALIZED";
    case bad_param:
      return "CUDNN_STATUS_BAD_PARAM";
    case not_supported:
      return "CUDNN_STATUS_NOT_SUPPORTED";
  }
  return "CUDNN_STATUS_EXECUTION_FAILED";
}
void cudnnGetLastErrorString(char* text, size_t size) {
  if (size == 0) return;
  std::strncpy(text, last_error.c_str(), size - 1);
  text[size - 1] = 0;
}

int cudnnCreate(void** handle) {
  int gpus = 0;
  if (planted("cudnnCreate") != cudaSuccess || cudaGetDeviceCount(&gpus) != cudaSuccess || gpus == 0)
    return refuse(not_initialized, "no GPU");
  *handle = new Handle;
  return success;
}
int cudnnSetStream(void* handle, CUstream_st* stream) {
  static_cast<Handle*>(handle)->stream = stream;
  return success;
}

int cudnnBackendCreateDescriptor(int kind, void** descriptor) {
  *descriptor = new Descriptor{make(kind)};
  return success;
}
int cudnnBackendDestroyDescriptor(void* descriptor) {
  delete static_cast<Descriptor*>(descriptor);
  return success;
}

int cudnnBackendSetAttribute(void* descriptor, int attribute, int type, std::int64_t count, const void* values) {
  Object& o = *static_cast<Descriptor*>(descriptor)->object;
  if (o.finished) return refuse(bad_param, "finished already");
  const int size = size_of_type(type);
  if (size == 0) {
    std::vector<Part>& parts = o.parts[attribute];
    parts.clear();
    for (std::int64_t i = 0; i < count; ++i) parts.push_back(static_cast<Descriptor* const*>(values)[i]->object);
    return success;
  }
  std::vector<std::int64_t>& numbers = o.numbers[attribute];
  numbers.assign(static_cast<size_t>(count), 0);
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(&numbers[static_cast<size_t>(i)], static_cast<const char*>(values) + i * size, static_cast<size_t>(size));
  return success;
}

int cudnnBackendFinalize(void* descriptor) {
  Object& o = *static_cast<Descriptor*>(descriptor)->object;
  if (!is_complete(o)) return refuse(bad_param, "an attribute is missing in a descriptor of type " + std::to_string(o.kind));
  if (o.kind == config) {
    if (!is_known(o)) return refuse(not_supported, "no such engine, or not with these knobs");
    o.numbers[303] = {workspace_bytes(o.part(300).part(1300))};
  }
  if (o.kind == plan) o.numbers[402] = {workspace_bytes(graph_of(o))};
  o.finished = true;
  return success;
}

int cudnnBackendGetAttribute(void* descriptor, int attribute, int type, std::int64_t wanted, std::int64_t* count, void* values) {
  Object& o = *static_cast<Descriptor*>(descriptor)->object;
  if (!o.finished) return refuse(bad_param, "not finished");
  if (o.kind == heuristics && attribute == 202) {
    std::vector<Part> found;
    for (const Choice& choice : choices(o.part(201))) found.push_back(config_of(o.parts.at(201)[0], choice));
    o.parts[202] = found;
  }
  const int size = size_of_type(type);
  if (size == 0) {
    const std::vector<Part>& parts = o.parts[attribute];
    *count = std::min<std::int64_t>(wanted, static_cast<std::int64_t>(parts.size()));
    for (std::int64_t i = 0; i < *count; ++i) static_cast<Descriptor**>(values)[i]->object = parts[static_cast<size_t>(i)];
    return success;
  }
  if (!o.numbers.contains(attribute)) return refuse(bad_param, "no such attribute");
  *count = 1;
  std::memcpy(values, &o.numbers.at(attribute)[0], static_cast<size_t>(size));
  return success;
}

int cudnnBackendExecute(void* handle, void* of_plan, void* with) {
  const Part what = static_cast<Descriptor*>(of_plan)->object;
  const Object& given = *static_cast<Descriptor*>(with)->object;
  const Object& of = graph_of(*what);
  const auto execution = std::make_shared<Execution>(of, what->part(401).part(300).number(1301) % 2 == 1);
  const auto &ids = given.numbers.at(1000), &pointers = given.numbers.at(1001);
  for (size_t i = 0; i < ids.size(); ++i) {
    const void* pointer = nullptr;
    std::memcpy(&pointer, &pointers[i], sizeof pointer);
    execution->give(ids[i], pointer);
  }
  std::string wrong;
  for_tensors(of, [&](const Object& t) {
    const std::int64_t id = t.number(906);
    if (t.number(907)) return;
    const auto at = std::ranges::find(ids, id) - ids.begin();
    if (at == static_cast<std::ptrdiff_t>(ids.size())) {
      wrong = "no pointer for tensor " + std::to_string(id);
    } else if (t.number_or(908, 0)) {
      float number = 0;
      std::memcpy(&number, std::bit_cast<const void*>(pointers[static_cast<size_t>(at)]), sizeof number);
      execution->give_number(id, number);
    } else if (pointers[static_cast<size_t>(at)] % t.number(900) != 0) {
      wrong = "a pointer that is not aligned";
    }
  });
  if (!wrong.empty()) return refuse(bad_param, wrong);
  char* workspace = std::bit_cast<char*>(given.number(1003));
  const auto work = [execution, what, workspace] {
    const Running running;
    std::memset(workspace, 0xff, static_cast<size_t>(workspace_bytes(graph_of(*what))));
    execution->run();
  };
  return enqueue(static_cast<Handle*>(handle)->stream, "cudnnBackendExecute", work) == cudaSuccess ? success : int{execution_failed};
}
}
