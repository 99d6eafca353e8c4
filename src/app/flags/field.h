// Functions that build an option's Field from a pointer to a member of a configuration, such as integer(&TrainConfig::steps). The member
// may be a T, an optional<T> (empty until the user gives a value) or a vector<T> (for repeatable options). Only the option tables include
// this.
#pragma once
#include <type_traits>
#include <utility>

#include "app/flags/option.h"
#include "app/flags/text.h"

namespace spillway::app {

template <class M>
struct MemberOf {
  using Value = M;
  static constexpr bool optional = false, vector = false;
};
template <class T>
struct MemberOf<std::optional<T>> {
  using Value = T;
  static constexpr bool optional = true, vector = false;
};
template <class T>
struct MemberOf<std::vector<T>> {
  using Value = T;
  static constexpr bool optional = false, vector = true;
};

/// Returns the configuration held in `settings` as its base class C. Throws Error(bug) if the command's configuration is not derived from
/// C.
template <class C, class S>
auto& part(S& settings) {
  using Part = std::conditional_t<std::is_const_v<S>, const C, C>;
  Part* found = nullptr;
  std::visit(
      [&](auto& config) {
        if constexpr (std::is_base_of_v<C, std::remove_cvref_t<decltype(config)>>) found = &config;
      },
      settings);
  require(found != nullptr, "[options] an option is bound to a configuration its command does not have");
  return *found;
}

/// Builds a Field for `member`. parse(text, what) must return the value, and print(value) must return its text.
template <class C, class M, class Parse, class Print>
Field make_field(Kind kind, M C::*member, Parse parse, Print print) {
  using Member = MemberOf<M>;
  Field field{.kind = kind, .repeatable = Member::vector, .choices = {}, .set = nullptr, .get = nullptr};
  field.set = [member, parse](Settings& settings, const std::string& text, const std::string& what) {
    M& value = part<C>(settings).*member;
    if constexpr (Member::vector) {
      value.push_back(parse(text, what));
    } else {
      value = static_cast<typename Member::Value>(parse(text, what));
    }
  };
  field.get = [member, print](const Settings& settings) -> std::optional<std::vector<std::string>> {
    const M& value = part<C>(settings).*member;
    if constexpr (Member::vector) {
      std::vector<std::string> texts;
      for (const auto& one : value) texts.push_back(print(one));
      return texts;
    } else if constexpr (Member::optional) {
      return value ? std::optional(std::vector{print(*value)}) : std::nullopt;
    } else {
      return std::vector{print(value)};
    }
  };
  return field;
}

template <class C, class M>
Field text(M C::*member) {
  return make_field(
      Kind::text, member, [](const std::string& t, const std::string&) { return t; }, [](const std::string& t) { return t; });
}
template <class C, class M>
Field integer(M C::*member) {
  return make_field(Kind::integer, member, parse_integer, [](auto value) { return std::to_string(value); });
}
template <class C, class M>
Field number(M C::*member) {
  return make_field(Kind::number, member, parse_number, print_number);
}
template <class C, class M>
Field flag(M C::*member) {
  return make_field(Kind::flag, member, parse_flag, [](bool value) { return std::string(value ? "true" : "false"); });
}
template <class C, class M>
Field size(M C::*member) {
  return make_field(Kind::size, member, parse_size, print_size);
}
template <class C, class M>
Field duration(M C::*member) {
  return make_field(Kind::duration, member, parse_duration, print_duration);
}
template <class C, class M, class Parse, class Print>
Field composite(M C::*member, Parse parse, Print print) {
  return make_field(Kind::composite, member, parse, print);
}

/// Builds a Field whose text is one of the given names. Each name stands for one value of the member.
template <class C, class M, class E = typename MemberOf<M>::Value>
Field choice(M C::*member, std::initializer_list<std::pair<const char*, std::type_identity_t<E>>> names) {
  const std::vector<std::pair<std::string, E>> table(names.begin(), names.end());
  Field field = make_field(
      Kind::choice, member,
      [table](const std::string& text, const std::string& what) {
        for (const auto& [name, value] : table) {
          if (name == text) return value;
        }
        throw Error(ErrorCode::usage, "[" + what + "] got \"" + text + "\"");
      },
      [table](E value) {
        for (const auto& [name, named] : table) {
          if (named == value) return name;
        }
        return std::string("?");
      });
  for (const auto& [name, value] : table) field.choices.push_back(name);
  return field;
}

/// Builds a Field whose text is one of the given words and is stored as text.
template <class C, class M>
Field word(M C::*member, std::vector<std::string> words) {
  Field field = text(member);
  field.kind = Kind::choice;
  field.choices = std::move(words);
  return field;
}

/// Returns the Field of an option that is stored in no configuration.
inline Field no_field(Kind kind, bool repeatable = false) {
  return {.kind = kind, .repeatable = repeatable, .choices = {}, .set = nullptr, .get = nullptr};
}

template <class... Commands>
unsigned on(Commands... commands) {
  return ((1u << static_cast<unsigned>(commands)) | ...);
}
/// Sets of commands that share options: commands that take a training configuration (kTrain), and commands that run a model (kRuns).
inline const unsigned kTrain = on(Command::train, Command::plan, Command::slurm);
inline const unsigned kRuns =
    on(Command::train, Command::plan, Command::generate, Command::chat, Command::evaluate, Command::classify, Command::slurm);
inline Range at_least(double low) { return {.low = low}; }
inline Range above(double low) { return {.low = low, .low_open = true}; }
inline Range fraction() { return {.low = 0, .high = 1, .high_open = true}; }

}  // namespace spillway::app
