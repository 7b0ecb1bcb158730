// JNI layer of org.msdc.encoder.NativeCore over the C interface. Texts cross as UTF-8 bytes: JNI's own strings are
// "modified" UTF-8, which breaks every character outside the basic plane.
#include <jni.h>

#include <memory>
#include <string>
#include <vector>

#include "msdc_encoder.h"
#include "msdc_index.h"

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

MSDC_JNI(jbyteArray, name)(JNIEnv* env, jclass, jlong value) {
  return bytes(env, msdc_name(handle_of(value)->encoder));
}

// --- search index -----------------------------------------------------------------------------------------------------

msdc_index* index_of(jlong value) { return reinterpret_cast<msdc_index*>(static_cast<intptr_t>(value)); }
msdc_index_batch* batch_of(jlong value) { return reinterpret_cast<msdc_index_batch*>(static_cast<intptr_t>(value)); }
jlong number_of(const void* pointer) { return static_cast<jlong>(reinterpret_cast<intptr_t>(pointer)); }

// The model of an encoder; none for 0.
msdc_index_model model_of(jlong value) { return {value == 0 ? nullptr : handle_of(value)->encoder, nullptr}; }

// Calls `work` with a place for its line; whether it succeeded.
template <typename Work>
bool checked(JNIEnv* env, Work work) {
  char error[kErrorBytes];
  const msdc_status status = work(error, sizeof error);
  if (status != MSDC_OK || env->ExceptionCheck()) raise(env, status, error);
  return status == MSDC_OK && !env->ExceptionCheck();
}

void append_text(void* context, const char* text, size_t size) {
  static_cast<std::vector<std::string>*>(context)->emplace_back(text, size);
}

// The text that `work` hands to its receiver; null without one, or where it failed.
template <typename Work>
jbyteArray text_from(JNIEnv* env, Work work) {
  std::vector<std::string> texts;
  const bool done = checked(env, [&](char* error, size_t size) { return work(append_text, &texts, error, size); });
  return done && !texts.empty() ? bytes(env, texts.front()) : nullptr;
}

MSDC_JNI(jlong, indexOpen)(JNIEnv* env, jclass, jbyteArray path, jlong encoder, jboolean check) {
  const msdc_index_options options = {sizeof options, 0, check ? 1 : 0, 0, nullptr, 0};
  const msdc_index_model model = model_of(encoder);
  const std::string file = bytes_of(env, path);
  msdc_index* index = nullptr;
  checked(env, [&](char* error, size_t size) {
    return msdc_index_open(file.c_str(), &options, &model, &index, error, size);
  });
  return number_of(index);
}

MSDC_JNI(void, indexClose)(JNIEnv*, jclass, jlong index) { msdc_index_close(index_of(index)); }

MSDC_JNI(void, indexInterrupt)(JNIEnv*, jclass, jlong index) { msdc_index_interrupt(index_of(index)); }

MSDC_JNI(jbyteArray, indexState)(JNIEnv* env, jclass, jlong index) {
  return text_from(env, [&](auto... receiver) { return msdc_index_state(index_of(index), receiver...); });
}

MSDC_JNI(jbyteArray, indexIds)(JNIEnv* env, jclass, jlong index) {
  return text_from(env, [&](auto... receiver) { return msdc_index_ids(index_of(index), receiver...); });
}

MSDC_JNI(jbyteArray, indexGet)(JNIEnv* env, jclass, jlong index, jbyteArray id) {
  const std::string key = bytes_of(env, id);
  return text_from(env, [&](auto... receiver) {
    return msdc_index_get(index_of(index), key.data(), key.size(), receiver...);
  });
}

MSDC_JNI(jlong, indexDocuments)
(JNIEnv* env, jclass, jlong index, jlong encoder, jbyteArray documents, jboolean replaces) {
  const msdc_index_model model = model_of(encoder);
  const std::string json = bytes_of(env, documents);
  msdc_index_batch* batch = nullptr;
  checked(env, [&](char* error, size_t size) {
    return msdc_index_documents(index_of(index), &model, json.data(), json.size(), replaces ? 1 : 0, &batch, error, size);
  });
  return number_of(batch);
}

MSDC_JNI(jlong, indexRebuild)(JNIEnv* env, jclass, jlong index, jlong encoder) {
  const msdc_index_model model = model_of(encoder);
  msdc_index_batch* batch = nullptr;
  checked(env, [&](char* error, size_t size) {
    return msdc_index_rebuild(index_of(index), &model, &batch, error, size);
  });
  return number_of(batch);
}

MSDC_JNI(jobjectArray, indexTexts)(JNIEnv* env, jclass, jlong batch) {
  std::vector<std::string> texts;
  if (!checked(env, [&](char* error, size_t size) {
        return msdc_index_texts(batch_of(batch), append_text, &texts, error, size);
      })) {
    return nullptr;
  }
  jobjectArray out = env->NewObjectArray(static_cast<jsize>(texts.size()), env->FindClass("[B"), nullptr);
  for (size_t i = 0; out != nullptr && i < texts.size(); ++i) {
    jbyteArray text = bytes(env, texts[i]);
    if (text == nullptr) return nullptr;
    env->SetObjectArrayElement(out, static_cast<jsize>(i), text);
    env->DeleteLocalRef(text);
  }
  return out;
}

// Documents that were written; of a rebuild, those with new vectors, and all.
MSDC_JNI(jlongArray, indexWrite)(JNIEnv* env, jclass, jlong index, jlong batch, jfloatArray vectors, jint width) {
  const std::vector<float> values = floats_of(env, vectors);
  const auto columns = static_cast<size_t>(width);
  msdc_index_progress progress = {};
  if (!checked(env, [&](char* error, size_t size) {
        return msdc_index_write(index_of(index), batch_of(batch), values.data(), values.size() / columns, columns,
                                &progress, error, size);
      })) {
    return nullptr;
  }
  const jlong numbers[] = {progress.written, progress.done, progress.total};
  jlongArray out = env->NewLongArray(3);
  if (out != nullptr) env->SetLongArrayRegion(out, 0, 3, numbers);
  return out;
}

MSDC_JNI(void, indexBatchClose)(JNIEnv*, jclass, jlong batch) { msdc_index_batch_close(batch_of(batch)); }

MSDC_JNI(jlong, indexRemove)(JNIEnv* env, jclass, jlong index, jbyteArray ids) {
  const std::string json = bytes_of(env, ids);
  int64_t removed = 0;
  checked(env, [&](char* error, size_t size) {
    return msdc_index_remove(index_of(index), json.data(), json.size(), &removed, error, size);
  });
  return removed;
}

MSDC_JNI(jbyteArray, indexQuery)(JNIEnv* env, jclass, jlong index, jlong encoder, jbyteArray request) {
  const msdc_index_model model = model_of(encoder);
  const std::string json = bytes_of(env, request);
  return text_from(env, [&](auto... receiver) {
    return msdc_index_query(index_of(index), &model, json.data(), json.size(), receiver...);
  });
}

// A null vector: by words.
MSDC_JNI(jbyteArray, indexSearch)(JNIEnv* env, jclass, jlong index, jbyteArray request, jfloatArray vector) {
  const std::string json = bytes_of(env, request);
  const std::vector<float> values = vector == nullptr ? std::vector<float>() : floats_of(env, vector);
  return text_from(env, [&](auto... receiver) {
    return msdc_index_search(index_of(index), json.data(), json.size(), values.data(), values.size(), receiver...);
  });
}

MSDC_JNI(void, indexCheck)(JNIEnv* env, jclass, jlong index) {
  checked(env, [&](char* error, size_t size) { return msdc_index_check(index_of(index), error, size); });
}

MSDC_JNI(void, indexBackup)(JNIEnv* env, jclass, jlong index, jbyteArray path) {
  const std::string file = bytes_of(env, path);
  checked(env, [&](char* error, size_t size) { return msdc_index_backup(index_of(index), file.c_str(), error, size); });
}

MSDC_JNI(void, indexCompact)(JNIEnv* env, jclass, jlong index) {
  checked(env, [&](char* error, size_t size) { return msdc_index_compact(index_of(index), error, size); });
}
