// cuDNN's graph API. The library is opened at run time, and building needs neither its headers nor the library. The parts that we use are
// declared here with the names and values of cudnn_graph.h; cudnn_cuda_test.cc compares them where that header exists. Included only by
// kernels/*/*_cuda.*. Thread-safe.
#pragma once
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/types.h"
#include "device/shared_library.h"

struct CUstream_st;  // the struct behind cudaStream_t

namespace spillway::kernels::cudnn {

/// Values of cuDNN's enum cudnnBackendDescriptorType_t, which are named CUDNN_BACKEND_..._DESCRIPTOR.
enum class Kind : int {
  pointwise = 0,
  engine = 2,
  engine_config = 3,
  engine_heuristics = 4,
  execution_plan = 5,
  knob_choice = 7,
  operation_pointwise = 13,
  operation_graph = 15,
  variant_pack = 16,
  tensor = 17,
  matmul = 18,
  operation_matmul = 19,
  reduction = 21,
  operation_reduction = 22,
  operation_reshape = 31,
  device_properties = 38
};

/// Values of cuDNN's enum cudnnBackendAttributeName_t, which are named CUDNN_ATTR_...
enum class Attribute : int {
  pointwise_mode = 0,
  pointwise_math_precision = 1,
  pointwise_axis = 9,
  heuristics_mode = 200,
  heuristics_graph = 201,
  heuristics_results = 202,
  heuristics_device = 204,
  config_engine = 300,
  config_knob_choices = 302,
  config_workspace_bytes = 303,
  plan_handle = 400,
  plan_config = 401,
  plan_workspace_bytes = 402,
  knob_type = 600,
  knob_value = 601,
  operation_pointwise = 750,
  operation_pointwise_x = 751,
  operation_pointwise_b = 752,
  operation_pointwise_y = 753,
  operation_pointwise_t = 758,
  graph_handle = 800,
  graph_operations = 801,
  tensor_alignment = 900,
  tensor_type = 901,
  tensor_dimensions = 902,
  tensor_strides = 903,
  tensor_id = 906,
  tensor_is_virtual = 907,
  tensor_is_by_value = 908,
  pack_ids = 1000,
  pack_pointers = 1001,
  pack_workspace = 1003,
  engine_graph = 1300,
  engine_index = 1301,
  engine_device = 1307,
  matmul_type = 1500,
  operation_matmul_a = 1520,
  operation_matmul_b = 1521,
  operation_matmul_c = 1522,
  operation_matmul = 1523,
  reduction_operator = 1600,
  reduction_type = 1601,
  operation_reduction_x = 1610,
  operation_reduction_y = 1611,
  operation_reduction = 1612,
  operation_reshape_x = 2200,
  operation_reshape_y = 2201,
  device_json = 2702
};

/// Values of cuDNN's enum cudnnBackendAttributeType_t, which are named CUDNN_TYPE_...
enum class Type : int {
  handle = 0,
  data_type = 1,
  boolean = 2,
  int64 = 3,
  pointer = 6,
  heuristics_mode = 8,
  knob_type = 9,
  pointwise_mode = 14,
  descriptor = 15,
  reduction_operator = 18,
  character = 24
};

/// Values of cuDNN's enum cudnnDataType_t, which are named CUDNN_DATA_...
enum class Data : int { f32 = 0, f16 = 2, int32 = 4, bf16 = 9, boolean = 11 };
/// Values of cuDNN's enum cudnnPointwiseMode_t, which are named CUDNN_POINTWISE_...
enum class Pointwise : int {
  add = 0,
  mul = 1,
  div = 6,
  sub = 9,
  exp = 13,
  log = 15,
  identity = 21,
  greater_equal = 303,
  index = 501,
  select = 601
};
/// Values of cuDNN's enum cudnnReduceTensorOp_t, which are named CUDNN_REDUCE_TENSOR_...
enum class Reduce : int { add = 0, max = 3 };
/// The value CUDNN_HEUR_MODE_A of cuDNN's enum cudnnBackendHeurMode_t.
enum class Heuristics : int { a = 3 };
/// The value of CUDNN_STATUS_SUCCESS, of cuDNN's enum cudnnStatus_t. Other status values are only turned into text.
constexpr int kSuccess = 0;

using Handle = void*;
using RawDescriptor = void*;

/// The functions of cuDNN that we use.
struct Library {
  SharedLibrary library;  // the library that the functions come from; empty in a build that is linked with them
  size_t (*version)() = nullptr;
  const char* (*error_string)(int status) = nullptr;
  void (*last_error)(char* text, size_t size) = nullptr;
  int (*create)(Handle*) = nullptr;
  int (*set_stream)(Handle, CUstream_st*) = nullptr;
  int (*descriptor_create)(int kind, RawDescriptor*) = nullptr;
  int (*descriptor_destroy)(RawDescriptor) = nullptr;
  int (*finalize)(RawDescriptor) = nullptr;
  int (*set)(RawDescriptor, int attribute, int type, i64 count, const void* values) = nullptr;
  int (*get)(RawDescriptor, int attribute, int type, i64 wanted, i64* count, void* values) = nullptr;
  int (*execute)(Handle, RawDescriptor plan, RawDescriptor pack) = nullptr;

  /// Returns the version as cuDNN counts it: 91900 for 9.19.0.
  i64 version_number() const { return static_cast<i64>(version()); }
};

/// The oldest version that is accepted. Up to 9.15.0 cuDNN computes a wrong backward pass for sequence lengths that are no multiple of 128
/// (cudnn-frontend works around it).
constexpr i64 kLeastVersion = 91501;
/// Returns a version as text, such as "9.19.0".
std::string version_text(i64 version);

/// Returns cuDNN, which is searched for once and never closed. The search tries the folders of the dynamic
/// loader, then the CUDA toolkit, then the nvidia-cudnn wheels in this user's Python installations. If cuDNN is
/// in none of them, throws Error(usage) with one line that also says what to do; the next call searches again.
const Library& library();
/// Opens the first library of `names` that exists. Throws Error(usage) if none does, as library() does.
Library open(const std::vector<std::string>& names);
/// Returns an empty string if the library is new enough. If it is older than kLeastVersion, returns one line that also says what to do.
std::string too_old(const Library& found);
/// Returns the names that library() tries, in the order of trying.
std::vector<std::string> library_names();

/// Throws an Error(io) that names `call` and cuDNN's message, unless `status` is kSuccess.
void check(int status, std::string_view call);

/// Owns a descriptor object of cuDNN's API and destroys it in the destructor. If cuDNN reports an error, the functions throw Error(io).
class Descriptor {
 public:
  explicit Descriptor(Kind kind);
  RawDescriptor raw() const { return raw_.get(); }

  void set(Attribute attribute, Type type, i64 count, const void* values) const;
  void set(Attribute attribute, i64 value) const { set(attribute, Type::int64, 1, &value); }
  void set(Attribute attribute, bool value) const { set(attribute, Type::boolean, 1, &value); }
  void set(Attribute attribute, const std::vector<i64>& values) const;
  void set(Attribute attribute, Type type, int value) const { set(attribute, type, 1, &value); }
  void set(Attribute attribute, const Descriptor& value) const;
  void set(Attribute attribute, const std::vector<RawDescriptor>& values) const;
  void set_handle(Attribute attribute, Handle value) const { set(attribute, Type::handle, 1, &value); }
  void finalize() const;
  /// Finalizes the descriptor and returns whether that succeeded.
  bool try_finalize() const;

  i64 number(Attribute attribute) const;
  int enumerator(Attribute attribute, Type type) const;
  /// Reads an attribute that is an array of finalized descriptors of `kind`, and returns its first `most` elements. A limit is needed
  /// because cuDNN does not tell the length of every array.
  std::vector<Descriptor> descriptors(Attribute attribute, Kind kind, i64 most) const;

 private:
  struct Destroy {
    void operator()(void* descriptor) const { static_cast<void>(library().descriptor_destroy(descriptor)); }
  };
  std::unique_ptr<void, Destroy> raw_;
};

}  // namespace spillway::kernels::cudnn
