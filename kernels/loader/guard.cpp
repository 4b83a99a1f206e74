// The functions that the macros of torch/csrc/stable/library.h call to register operators;
// `RENAMED` in compile.py has their names. torch's own functions return an error if an operator
// is already registered or a schema is wrong. The macros would throw this error while the
// library is loaded, which would end the process. These functions store the name or schema
// instead, and then register no more operators.
#include <cstdint>
#include <cstring>

struct Library;
using Function = void (*)(uint64_t*, uint64_t, uint64_t);

extern "C" {
int32_t aoti_torch_library_init_def(const char*, const char*, uint32_t, Library**);
int32_t aoti_torch_library_init_fragment(const char*, const char*, uint32_t, Library**);
int32_t aoti_torch_library_init_impl(
    const char*, const char*, const char*, uint32_t, Library**);
int32_t aoti_torch_library_def(Library*, const char*);
int32_t torch_library_impl(Library*, const char*, Function, uint64_t);
}

namespace {

char refused[1000];  // the first name or schema that torch did not register

// Calls one of torch's functions, unless such a call has failed before. `what` is the name or
// schema that the function registers.
template <typename... Parameters, typename... Arguments>
int32_t guard(const char* what, int32_t (*function)(Parameters...), Arguments... arguments) {
  if (refused[0] == '\0' && function(arguments...) != 0)
    std::strncpy(refused, what, sizeof refused - 1);
  return 0;
}

}  // namespace

extern "C" {
__attribute__((visibility("default"))) const char* refused_registration() { return refused; }

int32_t guarded_init_def(const char* name, const char* file, uint32_t line, Library** library) {
  *library = nullptr;
  return guard(name, aoti_torch_library_init_def, name, file, line, library);
}
int32_t guarded_init_fragment(
    const char* name, const char* file, uint32_t line, Library** library) {
  *library = nullptr;
  return guard(name, aoti_torch_library_init_fragment, name, file, line, library);
}
int32_t guarded_init_impl(
    const char* name, const char* key, const char* file, uint32_t line, Library** library) {
  *library = nullptr;
  return guard(name, aoti_torch_library_init_impl, name, key, file, line, library);
}
int32_t guarded_def(Library* library, const char* schema) {
  return guard(schema, aoti_torch_library_def, library, schema);
}
int32_t guarded_impl(Library* library, const char* name, Function function, uint64_t version) {
  return guard(name, torch_library_impl, library, name, function, version);
}
}
