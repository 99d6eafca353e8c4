#include <algorithm>
#include <cctype>
#include <cfenv>
#include <cstring>
#include <functional>
#include <optional>

#include "ptx/draft.h"
#include "ptx/program.h"

namespace ptx {
namespace {

std::size_t aligned(std::size_t at, std::size_t to) { return (at + to - 1) / to * to; }

const std::map<std::string, Special>& specials() {
  using enum Special;
  static const std::map<std::string, Special> all = {{"%tid.x", tid_x},
                                                     {"%tid.y", tid_y},
                                                     {"%tid.z", tid_z},
                                                     {"%ntid.x", ntid_x},
                                                     {"%ntid.y", ntid_y},
                                                     {"%ntid.z", ntid_z},
                                                     {"%ctaid.x", ctaid_x},
                                                     {"%ctaid.y", ctaid_y},
                                                     {"%ctaid.z", ctaid_z},
                                                     {"%nctaid.x", nctaid_x},
                                                     {"%nctaid.y", nctaid_y},
                                                     {"%nctaid.z", nctaid_z},
                                                     {"%laneid", laneid},
                                                     {"%warpid", warpid},
                                                     {"%lanemask_eq", lanemask_eq},
                                                     {"%lanemask_lt", lanemask_lt},
                                                     {"%lanemask_le", lanemask_le},
                                                     {"%lanemask_gt", lanemask_gt},
                                                     {"%lanemask_ge", lanemask_ge},
                                                     {"%clock", zero},
                                                     {"%clock64", zero},
                                                     {"%smid", zero},
                                                     {"_", zero}};
  return all;
}

constexpr int kMostCalls = 8;

class Decoder final : public Operands {
 public:
  Decoder(const Module& module, const std::map<std::string, u64>& variables) : module_(module), variables_(variables) {}

  Program decode(const std::string& kernel) {
    const auto found = module_.functions.find(kernel);
    if (found == module_.functions.end() || !found->second.is_kernel) throw std::runtime_error("there is no kernel " + kernel);
    const Function& f = found->second;
    program_.name = kernel, program_.most_threads = f.most_threads;
    scopes_.emplace_back();
    for (const Variable& parameter : f.parameters) {
      const std::size_t at = aligned(program_.parameter_bytes, parameter.align);
      scopes_.back().variables[parameter.name] = {Space::param, at};
      program_.parameters.push_back(parameter);
      program_.parameter_offsets.push_back(at);
      program_.parameter_bytes = at + parameter.bytes;
    }
    place_shared(f);
    body(f);
    append_end();
    resolve();
    program_.local_bytes = aligned(program_.local_bytes, 16);
    return std::move(program_);
  }

  Operand source(const std::string& text, u8 bytes) override {
    if (text.starts_with("!")) {
      Operand o = source(text.substr(1), bytes);
      if (o.bytes != 0) throw std::runtime_error("only predicates are negated");
      o.is_negated = true;
      return o;
    }
    u64 bits = 0;
    if (parse_number(text, bits)) return constant(bits, bytes);
    if (const auto special = specials().find(text); special != specials().end()) {
      // The bank holds all as 8 bytes a lane, and behind that all as 4 bytes a lane.
      const auto at = static_cast<u32>(special->second) * kLanes;
      if (bytes == 8) return {at * 8, specials_bank, 8, false, false};
      return {static_cast<u32>(Special::count) * kLanes * 8 + at * 4, specials_bank, 4, false, false};
    }
    if (const auto at = found_register(text)) return *at;
    if (const auto place = found_variable(text)) return constant(place->at, bytes);
    throw std::runtime_error("operand " + text + " is not declared");
  }

  Operand destination(const std::string& text) override {
    if (text == "_") return {0, registers_bank, 0, true, false};
    if (const auto at = found_register(text)) return *at;
    throw std::runtime_error("register " + text + " is not declared");
  }

  Operand address(const std::string& text, i64& offset, Space& space) override {
    if (!text.starts_with("[") || !text.ends_with("]")) throw std::runtime_error("expected an address, got " + text);
    std::string base = trimmed(text.substr(1, text.size() - 2));
    offset = 0;
    if (const std::size_t sign = base.find_first_of("+-", 1); sign != std::string::npos) {
      std::string number = trimmed(base.substr(sign + (base[sign] == '+' ? 1 : 0)));
      offset = std::strtoll(number.c_str(), nullptr, 0);
      base = trimmed(base.substr(0, sign));
    }
    if (const auto place = found_variable(base)) {
      if (space == Space::param && place->space == Space::local) space = Space::local;  // a parameter of a call lies in the thread's memory
      return constant(place->at, 8);
    }
    return source(base, 8);
  }

 private:
  struct Place {
    Space space;
    u64 at;
  };
  struct Family {  // registers declared as %r<count>
    u32 at;
    u8 bytes;
    int count;
  };
  struct Scope {
    std::map<std::string, Family> registers;
    std::map<std::string, Place> variables;
    std::map<std::string, int> labels;
    std::map<std::string, std::vector<std::string>> tables;
    bool is_function = false;
  };
  struct Jump {
    std::size_t at;
    std::vector<std::string> labels;
    std::vector<int> scopes;  // numbers of the scopes that are open there, outermost first
  };

  Operand constant(u64 bits, u8 bytes) {
    if (bytes == 0) {  // a predicate is one word
      Operand o = constant(bits != 0 ? 0xffffffff : 0, 4);
      o.bytes = 0;
      return o;
    }
    const auto [found, is_new] = constants_.try_emplace({bits, bytes}, static_cast<u32>(program_.constants.size()));
    if (is_new) {
      const std::size_t at = program_.constants.size();
      program_.constants.resize(at + aligned(std::size_t{kLanes} * bytes, 64));
      for (u32 lane = 0; lane < kLanes; ++lane)
        std::memcpy(&program_.constants[at + std::size_t{lane} * bytes], &bits, std::min<u8>(bytes, 8));
    }
    return {found->second, constants_bank, bytes, false, false};
  }

  std::optional<Operand> found_register(const std::string& name) const {
    std::size_t digits = name.size();
    while (digits > 0 && std::isdigit(static_cast<unsigned char>(name[digits - 1])) != 0) --digits;
    for (std::size_t i = open_.size(); i-- > 0;) {
      const Scope& scope = scopes_[static_cast<std::size_t>(open_[i])];
      if (const auto one = scope.registers.find(name); one != scope.registers.end())
        return Operand{one->second.at, registers_bank, one->second.bytes, false, false};
      if (digits < name.size()) {
        const auto family = scope.registers.find(name.substr(0, digits) + "<");
        const int number = std::atoi(name.c_str() + digits);
        if (family != scope.registers.end() && number < family->second.count) {
          const Family& f = family->second;
          return Operand{f.at + static_cast<u32>(number) * stride(f.bytes), registers_bank, f.bytes, false, false};
        }
      }
    }
    return std::nullopt;
  }
  static u32 stride(u8 bytes) { return bytes == 0 ? 4 : kLanes * bytes; }

  std::optional<Place> found_variable(const std::string& name) {
    for (std::size_t i = open_.size(); i-- > 0;) {
      const Scope& scope = scopes_[static_cast<std::size_t>(open_[i])];
      if (const auto one = scope.variables.find(name); one != scope.variables.end()) return one->second;
    }
    if (const auto one = variables_.find(name); one != variables_.end()) return Place{Space::global, one->second};
    return std::nullopt;
  }

  // Places the shared variables of the kernel, and those of the module that it names. Dynamic shared memory begins behind them.
  void place_shared(const Function& f) {
    const auto place = [&](const Variable& v) {
      const std::size_t at = aligned(program_.shared_bytes, v.align);
      scopes_[0].variables[v.name] = {Space::shared, at};
      program_.shared_bytes = at + v.bytes;
    };
    for (const Statement& s : statements_of(f)) {
      if (s.text.starts_with(".shared")) place(parse_variable(s.text));
    }
    const auto is_named = [&](const std::string& name) { return f.body.find(name) != std::string_view::npos; };
    for (const bool dynamic : {false, true}) {
      if (dynamic) program_.shared_bytes = aligned(program_.shared_bytes, 256);
      for (const auto& [name, v] : module_.variables) {
        if (v.space == Space::shared && (v.bytes == 0) == dynamic && is_named(name)) place(v);
      }
    }
  }
  u64 take_local(const Variable& v) {
    const std::size_t at = aligned(program_.local_bytes, v.align);
    program_.local_bytes = at + v.bytes;
    return at;
  }

  void declare_registers(const std::string& text) {
    const std::size_t space = text.find_first_of(" \t", text.find_first_not_of(" \t", 4));
    const Type type = type_named(trimmed(text.substr(4, space - 4)).substr(1));
    if (type.kind == Kind::none) throw std::runtime_error("registers of an unknown type");
    for (const std::string& name : split(text.substr(space), ',')) {
      const std::size_t open = name.find('<');
      const int count = open == std::string::npos ? 1 : std::atoi(name.c_str() + open + 1);
      scope().registers[open == std::string::npos ? name : name.substr(0, open + 1)] = {take_registers(type.bytes, count), type.bytes,
                                                                                        count};
    }
  }
  u32 take_registers(u8 bytes, int count) {
    const std::size_t at = aligned(program_.register_bytes, bytes == 0 ? 4 : 64);
    program_.register_bytes = at + static_cast<std::size_t>(count) * stride(bytes);
    return static_cast<u32>(at);
  }

  Scope& scope() { return scopes_[static_cast<std::size_t>(open_.back())]; }
  void open_scope() {
    open_.push_back(static_cast<int>(scopes_.size()));
    scopes_.emplace_back();
  }

  void body(const Function& f) {
    if (open_.empty()) open_.push_back(0);
    for (const Statement& s : statements_of(f)) {
      try {
        statement(f, s);
      } catch (const std::exception& error) {
        throw std::runtime_error(std::string(error.what()) + " in line " + std::to_string(s.line) + " of the PTX: " + s.text);
      }
    }
  }

  void statement(const Function& f, const Statement& s) {
    if (s.text == "{") return open_scope();
    if (s.text == "}") return open_.pop_back();
    if (s.text.ends_with(":")) {
      scope().labels[s.text.substr(0, s.text.size() - 1)] = static_cast<int>(program_.code.size());
      last_label_ = s.text.substr(0, s.text.size() - 1);
      return;
    }
    if (s.text.starts_with(".reg")) return declare_registers(s.text);
    if (s.text.starts_with(".shared")) {
      if (!f.is_kernel) throw std::runtime_error("shared memory of a called function");
      return;  // placed before
    }
    if (s.text.starts_with(".local") || s.text.starts_with(".param")) {
      const Variable v = parse_variable(s.text);
      scope().variables[v.name] = {Space::local, take_local(v)};
      return;
    }
    if (s.text.starts_with(".branchtargets")) {
      scope().tables[last_label_] = split(trimmed(s.text.substr(14)), ',');
      return;
    }
    if (s.text.starts_with(".pragma")) return;
    if (s.text.starts_with(".")) throw std::runtime_error("an unknown directive");
    instruction(f, s);
  }

  void instruction(const Function& f, const Statement& s) {
    Draft draft{{}, {}, {}, {}, *this, {}};
    Instruction& i = draft.instruction;
    i.line = s.line, i.source_line = s.source_line, i.source_file = s.source_file, i.text = s.text;
    std::string text = s.text;
    if (text.starts_with("@")) {
      const std::size_t end = text.find_first_of(" \t");
      i.has_guard = true;
      i.guard = source(text.substr(1, end - 1), 0);
      text = trimmed(text.substr(end));
    }
    const std::size_t end = std::min(text.find_first_of(" \t{"), text.size());
    const std::vector<std::string> parts = split(text.substr(0, end), '.');
    draft.name = parts[0];
    draft.modifiers.assign(parts.begin() + 1, parts.end());
    for (const std::string& part : draft.modifiers) {
      if (const Type type = type_named(part); type.kind != Kind::none) draft.types.push_back(type);
    }
    draft.arguments = split(trimmed(text.substr(end)), ',');
    i.type = draft.type(), i.type2 = draft.types.empty() ? Type{} : draft.types.front();
    i.flush = draft.is("ftz"), i.saturate = draft.is("sat");
    i.rounding = draft.is("rz") ? FE_TOWARDZERO : draft.is("rm") ? FE_DOWNWARD : draft.is("rp") ? FE_UPWARD : 0;
    if (draft.name == "call") return call(draft);
    if (control(f, draft)) return append(std::move(i));
    constexpr bool (*all[])(Draft&) = {decode_move,     decode_memory,     decode_integer,    decode_bits,
                                       decode_floating, decode_conversion, decode_comparison, decode_approximate,
                                       decode_halves,   decode_warp,       decode_copy,       decode_tensor_core};
    for (const auto decode_one : all) {
      if (decode_one(draft)) return append(std::move(i));
    }
    throw std::runtime_error("the interpreter does not know the instruction");
  }
  void append(Instruction&& i) { program_.code.push_back(std::move(i)); }

  bool control(const Function& f, Draft& draft) {
    Instruction& i = draft.instruction;
    if (draft.name == "ret" || draft.name == "exit") {
      i.flow = Flow::end;
      if (draft.name == "ret" && !f.is_kernel) {  // a called function is decoded in its caller's place
        i.flow = Flow::branch;
        jump({"return"});
      }
    } else if (draft.name == "bra") {
      i.flow = Flow::branch;
      jump({draft.arguments.at(0)});
    } else if (draft.name == "brx") {
      i.flow = Flow::branch_indexed;
      draft.add_from(draft.arguments.at(0), 4);
      jump({draft.arguments.at(1)});
      tables_.push_back(jumps_.size() - 1);
    } else {
      return false;
    }
    return true;
  }
  void jump(std::vector<std::string> labels) { jumps_.push_back({program_.code.size(), std::move(labels), open_}); }

  // call (results), function, (arguments): the function's parameters are the caller's variables, and its body is decoded here.
  void call(Draft& draft) {
    std::vector<std::string>& a = draft.arguments;
    const bool returns = a.at(0).starts_with("(");
    const auto found = module_.functions.find(a.at(returns ? 1 : 0));
    if (found == module_.functions.end()) draft.refuse("a call of an unknown function");
    if (++calls_ > kMostCalls) draft.refuse("functions that call each other");
    const Function& f = found->second;
    const auto names = [](const std::string& list) { return split(list.substr(1, list.size() - 2), ','); };
    const std::size_t list = returns ? 2 : 1;
    Scope inner;
    const auto bind = [&](const std::vector<Variable>& declared, const std::vector<std::string>& given) {
      for (std::size_t k = 0; k < declared.size(); ++k) {
        const auto place = found_variable(given.at(k));
        if (!place) draft.refuse("argument " + given[k] + " is not declared");
        inner.variables[declared[k].name] = *place;
      }
    };
    if (returns) bind(f.results, names(a[0]));
    if (!f.parameters.empty()) bind(f.parameters, names(a.at(list)));
    std::vector<int> callers = std::move(open_);
    scopes_.push_back(std::move(inner));
    open_ = {static_cast<int>(scopes_.size()) - 1};
    const std::vector<int> own = open_;
    body(f);
    scopes_[static_cast<std::size_t>(own[0])].labels["return"] = static_cast<int>(program_.code.size());
    open_ = std::move(callers);
    --calls_;
  }

  void append_end() {
    Instruction end;
    end.flow = Flow::end, end.text = "(the kernel's end)";
    append(std::move(end));
  }

  int label(const Jump& jump, const std::string& name) const {
    for (std::size_t i = jump.scopes.size(); i-- > 0;) {
      const auto& labels = scopes_[static_cast<std::size_t>(jump.scopes[i])].labels;
      if (const auto found = labels.find(name); found != labels.end()) return found->second;
    }
    throw std::runtime_error("label " + name + " is not declared");
  }
  void resolve() {
    for (const std::size_t indexed : tables_) {
      Jump& jump = jumps_[indexed];
      for (std::size_t i = jump.scopes.size(); i-- > 0;) {
        const auto& tables = scopes_[static_cast<std::size_t>(jump.scopes[i])].tables;
        if (const auto found = tables.find(jump.labels[0]); found != tables.end()) {
          for (const std::string& name : found->second) program_.code[jump.at].targets.push_back(label(jump, name));
        }
      }
      jump.labels.clear();
    }
    for (const Jump& jump : jumps_) {
      if (!jump.labels.empty()) program_.code[jump.at].target = label(jump, jump.labels[0]);
    }
  }

  const Module& module_;
  const std::map<std::string, u64>& variables_;
  Program program_;
  std::vector<Scope> scopes_;
  std::vector<int> open_;
  std::map<std::pair<u64, u8>, u32> constants_;
  std::vector<Jump> jumps_;
  std::vector<std::size_t> tables_;
  std::string last_label_;
  int calls_ = 0;
};

}  // namespace

Program decode(const Module& module, const std::string& kernel, const std::map<std::string, u64>& variables) {
  return Decoder(module, variables).decode(kernel);
}

}  // namespace ptx
