// JNI layer of org.msdc.encoder.NativeCore over the C interface. Texts cross as UTF-8 bytes: JNI's own strings are
// "modified" UTF-8, which breaks every character outside the basic plane.
#include <jni.h>

#include <memory>
#include <string>
#include <vector>

#include "msdc_encoder.h"

namespace {

constexpr size_t kErrorBytes = 1024;

struct Handle {
  msdc_encoder* encoder = nullptr;
  JavaVM* vm = nullptr;
  jobject program = nullptr;  // global reference, null where the core runs the program itself
  jmethodID run = nullptr;
};

Handle* handle_of(jlong value) { return reinterpret_cast<Handle*>(static_cast<intptr_t>(value)); }

void raise(JNIEnv* env, msdc_status status, const char* line) {
  // A Java exception that the caller's program threw is more precise than our line about it.
  if (env->ExceptionCheck()) return;
  const char* name = nullptr;
  if (status == MSDC_BAD_ARGUMENT) name = "java/lang/IllegalArgumentException";
  if (status == MSDC_CANCELLED) name = "java/util/concurrent/CancellationException";
  if (status == MSDC_MEMORY) name = "java/lang/OutOfMemoryError";
  if (name != nullptr) {
    jclass kind = env->FindClass(name);
    if (kind != nullptr) env->ThrowNew(kind, line);
    return;
  }
  jclass kind = env->FindClass("org/msdc/encoder/EncoderException");
  jmethodID make = kind == nullptr ? nullptr : env->GetMethodID(kind, "<init>", "(ILjava/lang/String;)V");
  jstring text = make == nullptr ? nullptr : env->NewStringUTF(line);
  if (text == nullptr) return;
  jobject failure = env->NewObject(kind, make, static_cast<jint>(status), text);
  if (failure != nullptr) env->Throw(static_cast<jthrowable>(failure));
}

std::string bytes_of(JNIEnv* env, jbyteArray array) {
  std::string out(static_cast<size_t>(env->GetArrayLength(array)), '\0');
  env->GetByteArrayRegion(array, 0, static_cast<jsize>(out.size()), reinterpret_cast<jbyte*>(&out[0]));
  return out;
}

jbyteArray bytes(JNIEnv* env, const std::string& held) {
  const auto size = static_cast<jsize>(held.size());
  jbyteArray out = env->NewByteArray(size);
  if (out != nullptr) env->SetByteArrayRegion(out, 0, size, reinterpret_cast<const jbyte*>(held.data()));
  return out;
}

std::string text_of(JNIEnv* env, jstring text) {
  const char* chars = env->GetStringUTFChars(text, nullptr);
  if (chars == nullptr) return "";
  std::string out(chars);
  env->ReleaseStringUTFChars(text, chars);
  return out;
}

jfloatArray floats(JNIEnv* env, const std::vector<float>& values) {
  jfloatArray out = env->NewFloatArray(static_cast<jsize>(values.size()));
  if (out != nullptr) env->SetFloatArrayRegion(out, 0, static_cast<jsize>(values.size()), values.data());
  return out;
}

std::vector<float> floats_of(JNIEnv* env, jfloatArray array) {
  std::vector<float> out(static_cast<size_t>(env->GetArrayLength(array)));
  env->GetFloatArrayRegion(array, 0, static_cast<jsize>(out.size()), out.data());
  return out;
}

// The core calls back on the thread that called encode(), which the virtual machine therefore knows.
int32_t run_java_program(void* context, const int32_t* ids, size_t count, size_t prompt_tokens, float* vector,
                         size_t width) {
  const Handle* handle = static_cast<Handle*>(context);
  JNIEnv* env = nullptr;
  if (handle->vm->GetEnv(reinterpret_cast<void**>(&env), JNI_VERSION_1_6) != JNI_OK) return 1;
  jintArray input = env->NewIntArray(static_cast<jsize>(count));
  if (input == nullptr) return 2;
  env->SetIntArrayRegion(input, 0, static_cast<jsize>(count), ids);
  auto output = static_cast<jfloatArray>(env->CallObjectMethod(handle->program, handle->run, input, static_cast<jint>(prompt_tokens)));
  env->DeleteLocalRef(input);
  if (env->ExceptionCheck()) return 3;
  if (output == nullptr || env->GetArrayLength(output) != static_cast<jsize>(width)) return 4;
  env->GetFloatArrayRegion(output, 0, static_cast<jsize>(width), vector);
  env->DeleteLocalRef(output);
  return 0;
}

void destroy(JNIEnv* env, Handle* handle) {
  msdc_close(handle->encoder);
  if (handle->program != nullptr) env->DeleteGlobalRef(handle->program);
  delete handle;
}

}  // namespace

#define MSDC_JNI(type, name) extern "C" JNIEXPORT type JNICALL Java_org_msdc_encoder_NativeCore_##name

MSDC_JNI(jstring, runtime)(JNIEnv* env, jclass) { return env->NewStringUTF(msdc_runtime()); }

MSDC_JNI(jlong, open)(JNIEnv* env, jclass, jbyteArray folder, jint threads, jboolean check_files) {
  auto handle = std::make_unique<Handle>();
  char error[kErrorBytes];
  const msdc_options options = {sizeof options, threads, check_files ? 1 : 0};
  const msdc_status status =
      msdc_open(bytes_of(env, folder).c_str(), &options, &handle->encoder, error, sizeof error);
  if (status != MSDC_OK) {
    raise(env, status, error);
    return 0;
  }
  return static_cast<jlong>(reinterpret_cast<intptr_t>(handle.release()));
}

MSDC_JNI(jlong, openWith)
(JNIEnv* env, jclass, jbyteArray folder, jboolean check_files, jstring runtime, jobject program) {
  auto handle = std::make_unique<Handle>();
  char error[kErrorBytes];
  if (env->GetJavaVM(&handle->vm) != JNI_OK) {
    raise(env, MSDC_RUNTIME, "no Java virtual machine");
    return 0;
  }
  handle->run = env->GetMethodID(env->GetObjectClass(program), "run", "([II)[F");
  if (handle->run == nullptr) return 0;
  handle->program = env->NewGlobalRef(program);
  const msdc_options options = {sizeof options, 1, check_files ? 1 : 0};
  const msdc_status status =
      msdc_open_with(bytes_of(env, folder).c_str(), &options, text_of(env, runtime).c_str(), run_java_program,
                     handle.get(), &handle->encoder, error, sizeof error);
  if (status != MSDC_OK) {
    destroy(env, handle.release());
    raise(env, status, error);
    return 0;
  }
  return static_cast<jlong>(reinterpret_cast<intptr_t>(handle.release()));
}

MSDC_JNI(void, close)(JNIEnv* env, jclass, jlong value) { destroy(env, handle_of(value)); }

// "file\nmulti-method (1 or 0)\nrepeats\ntakes the prompt's tokens (1 or 0)"
MSDC_JNI(jstring, findProgram)(JNIEnv* env, jclass, jbyteArray folder, jstring runtime) {
  char error[kErrorBytes], file[1024];
  int32_t multi_method = 0, repeats = 0, takes_prompt = 0;
  const msdc_status status =
      msdc_find_program(bytes_of(env, folder).c_str(), text_of(env, runtime).c_str(), file, sizeof file, &multi_method,
                        &repeats, &takes_prompt, error, sizeof error);
  if (status != MSDC_OK) {
    raise(env, status, error);
    return nullptr;
  }
  const std::string out = std::string(file) + "\n" + std::to_string(multi_method) + "\n" + std::to_string(repeats) +
                          "\n" + std::to_string(takes_prompt);
  return env->NewStringUTF(out.c_str());
}

// "name\tbytes\tsha256\n" for each file
MSDC_JNI(jstring, bundleFiles)(JNIEnv* env, jclass, jbyteArray folder, jstring runtime) {
  char error[kErrorBytes];
  std::vector<char> lines(1 << 14);
  size_t size = 0;
  const msdc_status status = msdc_bundle_files(bytes_of(env, folder).c_str(), text_of(env, runtime).c_str(),
                                               lines.data(), lines.size(), &size, error, sizeof error);
  if (status != MSDC_OK) {
    raise(env, status, error);
    return nullptr;
  }
  return env->NewStringUTF(lines.data());
}

MSDC_JNI(jint, width)(JNIEnv*, jclass, jlong value) { return msdc_width(handle_of(value)->encoder); }

MSDC_JNI(jint, maxLength)(JNIEnv*, jclass, jlong value) { return msdc_max_length(handle_of(value)->encoder); }

MSDC_JNI(jbyteArray, prompt)(JNIEnv* env, jclass, jlong value, jbyteArray name) {
  char error[kErrorBytes];
  const char* found = nullptr;
  const msdc_status status =
      msdc_find_prompt(handle_of(value)->encoder, bytes_of(env, name).c_str(), &found, error, sizeof error);
  if (status != MSDC_OK) {
    raise(env, status, error);
    return nullptr;
  }
  return bytes(env, found);
}

// A null prompt is the bundle's default.
MSDC_JNI(jfloatArray, encode)(JNIEnv* env, jclass, jlong value, jbyteArray text, jbyteArray prompt) {
  msdc_encoder* encoder = handle_of(value)->encoder;
  const std::string utf8 = bytes_of(env, text);
  const std::string first = prompt == nullptr ? "" : bytes_of(env, prompt);
  std::vector<float> vector(static_cast<size_t>(msdc_width(encoder)));
  char error[kErrorBytes];
  const msdc_status status =
      msdc_encode(encoder, prompt == nullptr ? nullptr : first.c_str(), utf8.data(), utf8.size(), vector.data(),
                  vector.size(), error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return floats(env, vector);
}

// The texts of a Java array, as the C interface takes them.
struct Texts {
  std::vector<std::string> held;
  std::vector<const char*> starts;
  std::vector<size_t> sizes;

  Texts(JNIEnv* env, jobjectArray texts) {
    const jsize count = env->GetArrayLength(texts);
    held.reserve(static_cast<size_t>(count));
    for (jsize i = 0; i < count; ++i) {
      auto text = static_cast<jbyteArray>(env->GetObjectArrayElement(texts, i));
      held.push_back(bytes_of(env, text));
      env->DeleteLocalRef(text);
      starts.push_back(held.back().data());
      sizes.push_back(held.back().size());
    }
  }
};

// Whether the caller's direct buffer of one byte asks to stop; written by another thread.
int32_t stopped(void* flag, size_t) { return __atomic_load_n(static_cast<const unsigned char*>(flag), __ATOMIC_RELAXED); }

MSDC_JNI(jfloatArray, encodeBatch)
(JNIEnv* env, jclass, jlong value, jobjectArray texts, jbyteArray prompt, jobject stop) {
  msdc_encoder* encoder = handle_of(value)->encoder;
  const std::string first = prompt == nullptr ? "" : bytes_of(env, prompt);
  const Texts held(env, texts);
  const auto width = static_cast<size_t>(msdc_width(encoder));
  std::vector<float> vectors(width * held.sizes.size());
  void* flag = stop == nullptr ? nullptr : env->GetDirectBufferAddress(stop);
  char error[kErrorBytes];
  const msdc_status status =
      msdc_encode_batch(encoder, prompt == nullptr ? nullptr : first.c_str(), held.starts.data(), held.sizes.data(),
                        held.sizes.size(), vectors.data(), width, flag == nullptr ? nullptr : stopped, flag, error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return floats(env, vectors);
}

MSDC_JNI(jint, countTruncated)(JNIEnv* env, jclass, jlong value, jobjectArray texts, jbyteArray prompt) {
  const std::string first = prompt == nullptr ? "" : bytes_of(env, prompt);
  const Texts held(env, texts);
  size_t truncated = 0;
  char error[kErrorBytes];
  const msdc_status status = msdc_count_truncated(
      handle_of(value)->encoder, prompt == nullptr ? nullptr : first.c_str(), held.starts.data(), held.sizes.data(),
      held.sizes.size(), &truncated, error, sizeof error);
  if (status != MSDC_OK) raise(env, status, error);
  return static_cast<jint>(truncated);
}

MSDC_JNI(jfloatArray, encodeIds)(JNIEnv* env, jclass, jlong value, jintArray ids) {
  msdc_encoder* encoder = handle_of(value)->encoder;
  std::vector<int32_t> held(static_cast<size_t>(env->GetArrayLength(ids)));
  env->GetIntArrayRegion(ids, 0, static_cast<jsize>(held.size()), held.data());
  std::vector<float> vector(static_cast<size_t>(msdc_width(encoder)));
  char error[kErrorBytes];
  const msdc_status status =
      msdc_encode_ids(encoder, held.data(), held.size(), vector.data(), vector.size(), error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return floats(env, vector);
}

MSDC_JNI(jintArray, tokenize)(JNIEnv* env, jclass, jlong value, jbyteArray text) {
  msdc_encoder* encoder = handle_of(value)->encoder;
  const std::string utf8 = bytes_of(env, text);
  std::vector<int32_t> ids(static_cast<size_t>(msdc_max_length(encoder)));
  size_t count = 0;
  char error[kErrorBytes];
  const msdc_status status =
      msdc_encoder_tokenize(encoder, utf8.data(), utf8.size(), ids.data(), ids.size(), &count, error, sizeof error);
  if (status != MSDC_OK) {
    raise(env, status, error);
    return nullptr;
  }
  jintArray out = env->NewIntArray(static_cast<jsize>(count));
  if (out != nullptr) env->SetIntArrayRegion(out, 0, static_cast<jsize>(count), ids.data());
  return out;
}

// [texts, ids that differ, least cosine, mean cosine]; throws where the self-test fails.
MSDC_JNI(jfloatArray, selfTest)(JNIEnv* env, jclass, jlong value, jfloat promise) {
  msdc_self_test_result result = {};
  char error[kErrorBytes];
  const msdc_status status = msdc_self_test(handle_of(value)->encoder, promise, &result, error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return floats(env, {static_cast<float>(result.texts), static_cast<float>(result.ids_differ), result.min_cosine,
                      result.mean_cosine});
}

MSDC_JNI(jfloat, cosine)(JNIEnv* env, jclass, jfloatArray a, jfloatArray b) {
  const std::vector<float> left = floats_of(env, a), right = floats_of(env, b);
  return env->ExceptionCheck() ? 0.0f : msdc_cosine(left.data(), right.data(), left.size());
}

// The first `rows_held` rows of `vectors`, whose array may be longer.
MSDC_JNI(jfloatArray, topK)
(JNIEnv* env, jclass, jfloatArray query, jfloatArray vectors, jint rows_held, jintArray rows) {
  const std::vector<float> held = floats_of(env, query);
  const auto count = static_cast<size_t>(rows_held);
  const auto k = static_cast<size_t>(env->GetArrayLength(rows));
  std::vector<int32_t> found_rows(k);
  std::vector<float> cosines(k);
  size_t found = 0;
  char error[kErrorBytes];
  // Without a copy: an index of many notes is large, and nothing is called back between.
  void* values = count == 0 ? nullptr : env->GetPrimitiveArrayCritical(vectors, nullptr);
  if (count != 0 && values == nullptr) return nullptr;
  const msdc_status status = msdc_top_k(held.data(), static_cast<const float*>(values), count, held.size(), k,
                                        found_rows.data(), cosines.data(), &found, error, sizeof error);
  if (values != nullptr) env->ReleasePrimitiveArrayCritical(vectors, values, JNI_ABORT);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  env->SetIntArrayRegion(rows, 0, static_cast<jsize>(k), found_rows.data());
  return floats(env, cosines);
}

MSDC_JNI(jstring, source)(JNIEnv* env, jclass, jlong value) {
  return env->NewStringUTF(msdc_source(handle_of(value)->encoder));
}

MSDC_JNI(jstring, cosines)(JNIEnv* env, jclass, jlong value) {
  return env->NewStringUTF(msdc_cosines(handle_of(value)->encoder));
}

MSDC_JNI(jbyteArray, name)(JNIEnv* env, jclass, jlong value) {
  return bytes(env, msdc_name(handle_of(value)->encoder));
}

MSDC_JNI(jboolean, canRead)(JNIEnv* env, jclass, jlong value, jbyteArray text) {
  const std::string utf8 = bytes_of(env, text);
  int32_t reads = 0;
  char error[kErrorBytes];
  const msdc_status status =
      msdc_can_read(handle_of(value)->encoder, utf8.data(), utf8.size(), &reads, error, sizeof error);
  if (status != MSDC_OK) raise(env, status, error);
  return reads != 0;
}

// One passage behind the others: start and end (int32), scale (float, 0: no vector), vector; little-endian, as every
// machine this runs on.
int32_t append_passage(void* context, size_t start, size_t end, float scale, const int8_t* vector, size_t width) {
  std::string* out = static_cast<std::string*>(context);
  const int32_t span[] = {static_cast<int32_t>(start), static_cast<int32_t>(end)};
  out->append(reinterpret_cast<const char*>(span), sizeof span);
  out->append(reinterpret_cast<const char*>(&scale), sizeof scale);
  if (vector != nullptr) out->append(reinterpret_cast<const char*>(vector), width);
  return 0;
}

MSDC_JNI(jbyteArray, passages)
(JNIEnv* env, jclass, jlong value, jbyteArray title, jbyteArray text, jboolean titled) {
  const std::string first = bytes_of(env, title), utf8 = bytes_of(env, text);
  std::string out;
  char error[kErrorBytes];
  const msdc_status status =
      msdc_index_document(handle_of(value)->encoder, first.data(), first.size(), utf8.data(), utf8.size(),
                          titled ? 1 : 0, append_passage, &out, error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return bytes(env, out);
}

void keep_text(void* context, const char* text, size_t size) { static_cast<std::string*>(context)->assign(text, size); }

MSDC_JNI(jbyteArray, searchWords)(JNIEnv* env, jclass, jbyteArray text) {
  const std::string utf8 = bytes_of(env, text);
  std::string out;
  char error[kErrorBytes];
  const msdc_status status = msdc_search_words(utf8.data(), utf8.size(), keep_text, &out, error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return bytes(env, out);
}

MSDC_JNI(jbyteArray, searchPlan)(JNIEnv* env, jclass, jbyteArray query, jboolean operators) {
  const std::string utf8 = bytes_of(env, query);
  std::string out;
  char error[kErrorBytes];
  const msdc_status status =
      msdc_search_plan(utf8.data(), utf8.size(), operators ? 1 : 0, keep_text, &out, error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return bytes(env, out);
}

void append_span(void* context, size_t start, size_t end) {
  auto* out = static_cast<std::vector<jint>*>(context);
  out->push_back(static_cast<jint>(start));
  out->push_back(static_cast<jint>(end));
}

// The best passage, then start and end of each span.
MSDC_JNI(jintArray, searchShow)
(JNIEnv* env, jclass, jbyteArray text, jbyteArray terms, jlongArray starts, jlongArray ends, jfloatArray cosines,
 jboolean by_cosine) {
  const std::string utf8 = bytes_of(env, text), lines = bytes_of(env, terms);
  const std::vector<float> near = floats_of(env, cosines);
  std::vector<int64_t> firsts(near.size()), lasts(near.size());
  const auto count = static_cast<jsize>(near.size());
  env->GetLongArrayRegion(starts, 0, count, reinterpret_cast<jlong*>(firsts.data()));
  env->GetLongArrayRegion(ends, 0, count, reinterpret_cast<jlong*>(lasts.data()));
  if (env->ExceptionCheck()) return nullptr;
  std::vector<jint> out(1);
  size_t best = 0;
  char error[kErrorBytes];
  const msdc_status status =
      msdc_search_show(utf8.data(), utf8.size(), lines.data(), lines.size(), firsts.data(), lasts.data(), near.data(),
                       near.size(), by_cosine ? 1 : 0, &best, append_span, &out, error, sizeof error);
  if (status != MSDC_OK) {
    raise(env, status, error);
    return nullptr;
  }
  out[0] = static_cast<jint>(best);
  jintArray array = env->NewIntArray(static_cast<jsize>(out.size()));
  if (array != nullptr) env->SetIntArrayRegion(array, 0, static_cast<jsize>(out.size()), out.data());
  return array;
}

MSDC_JNI(jfloatArray, int8Cosines)(JNIEnv* env, jclass, jfloatArray query, jbyteArray codes, jfloatArray scales) {
  const std::vector<float> held = floats_of(env, query), by = floats_of(env, scales);
  std::vector<float> cosines(by.size());
  if (by.empty()) return floats(env, cosines);
  void* rows = env->GetPrimitiveArrayCritical(codes, nullptr);  // without a copy
  if (rows == nullptr) return nullptr;
  char error[kErrorBytes];
  const msdc_status status = msdc_int8_cosines(held.data(), held.size(), static_cast<const int8_t*>(rows), by.data(),
                                               by.size(), cosines.data(), error, sizeof error);
  env->ReleasePrimitiveArrayCritical(codes, rows, JNI_ABORT);
  if (status != MSDC_OK || env->ExceptionCheck()) {
    raise(env, status, error);
    return nullptr;
  }
  return floats(env, cosines);
}

MSDC_JNI(jint, crc32)(JNIEnv* env, jclass, jint start, jbyteArray data) {
  const std::string held = bytes_of(env, data);
  return static_cast<jint>(msdc_crc32(static_cast<uint32_t>(start), held.data(), held.size()));
}
