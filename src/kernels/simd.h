// Selects the instruction sets for which files that use Highway are compiled: the x86-64-v2 baseline, AVX2 and AVX-512.
// One of them is chosen at run time. Every file that uses Highway includes this header before hwy/foreach_target.h.
#pragma once
// Highway's SSE4 target requires AES instructions, which the baseline lacks. SSSE3 is Highway's target for the baseline.
#define HWY_DISABLED_TARGETS HWY_SSE4

/// SPILLWAY_FOR_TYPES stands in HWY_NAMESPACE. It names the instances of a function template NAME_f32, NAME_f64, NAME_bf16 and NAME_f16.
#define SPILLWAY_FOR_TYPES(NAME, TEMPLATE)          \
  constexpr auto& NAME##_f32 = TEMPLATE<float>;     \
  constexpr auto& NAME##_f64 = TEMPLATE<double>;    \
  constexpr auto& NAME##_bf16 = TEMPLATE<BFloat16>; \
  constexpr auto& NAME##_f16 = TEMPLATE<Float16>

/// SPILLWAY_EXPORT_TYPES exports the functions NAME_f32, NAME_f64, NAME_bf16 and NAME_f16 for all instruction sets. SPILLWAY_DISPATCH_TYPE
/// calls the one for the type T.
#define SPILLWAY_EXPORT_TYPES(NAME) \
  HWY_EXPORT(NAME##_f32);           \
  HWY_EXPORT(NAME##_f64);           \
  HWY_EXPORT(NAME##_bf16);          \
  HWY_EXPORT(NAME##_f16)
#define SPILLWAY_DISPATCH_TYPE(T, NAME, ...)                                                                      \
  [&] {                                                                                                           \
    if constexpr (std::is_same_v<T, float>) return HWY_DYNAMIC_DISPATCH(NAME##_f32)(__VA_ARGS__);                 \
    if constexpr (std::is_same_v<T, double>) return HWY_DYNAMIC_DISPATCH(NAME##_f64)(__VA_ARGS__);                \
    if constexpr (std::is_same_v<T, ::spillway::BFloat16>) return HWY_DYNAMIC_DISPATCH(NAME##_bf16)(__VA_ARGS__); \
    if constexpr (std::is_same_v<T, ::spillway::Float16>) return HWY_DYNAMIC_DISPATCH(NAME##_f16)(__VA_ARGS__);   \
  }()
