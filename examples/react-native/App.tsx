import { useState } from "react";
import {
  Button, FlatList, KeyboardAvoidingView, Platform, StyleSheet, Text, TextInput, useColorScheme, View,
} from "react-native";
import { useNotes } from "./useNotes";

const COLORS = {
  light: { back: "#fff", text: "#111", faint: "#666", error: "#b00020" },
  dark: { back: "#111", text: "#eee", faint: "#aaa", error: "#ff8a80" },
};

function useColors() {
  return COLORS[useColorScheme() === "dark" ? "dark" : "light"];
}

function Field(props: { label: string; value: string; onChange: (text: string) => void; multiline?: boolean }) {
  const colors = useColors();
  return (
    <TextInput style={[styles.field, { color: colors.text, borderColor: colors.faint }]} value={props.value}
      onChangeText={props.onChange} multiline={props.multiline} placeholder={props.label}
      placeholderTextColor={colors.faint} accessibilityLabel={props.label} />
  );
}

function Editor(props: { text?: string; label: string; onSave: (text: string) => void; onCancel?: () => void }) {
  const [value, setValue] = useState(props.text ?? "");
  const save = () => {
    props.onSave(value.trim());
    setValue("");
  };
  return (
    <View>
      <Field label={props.label} value={value} onChange={setValue} multiline />
      <View style={styles.row}>
        <Button title="Save" onPress={save} disabled={!value.trim()} />
        {props.onCancel && <Button title="Cancel" onPress={props.onCancel} />}
      </View>
    </View>
  );
}

export default function App() {
  const [query, setQuery] = useState(""), [edited, setEdited] = useState<number>();
  const { notes, progress, error, save, remove } = useNotes(query), colors = useColors(), text = { color: colors.text };
  return (
    <KeyboardAvoidingView style={[styles.page, { backgroundColor: colors.back }]}
      behavior={Platform.OS === "ios" ? "padding" : undefined}>
      {error && <Text style={{ color: colors.error }}>{error}</Text>}
      {progress && !error && <Text style={text}>{progress}</Text>}
      {!progress && (
        <>
          <Field label="Search in any language" value={query} onChange={setQuery} />
          <Editor label="New note" onSave={save} />
          <FlatList data={notes} keyExtractor={({ id }) => `${id}`} keyboardShouldPersistTaps="handled"
            ListEmptyComponent={<Text style={text}>{query.trim() ? "Nothing relevant" : "No notes yet"}</Text>}
            renderItem={({ item: note }) => (edited === note.id ? (
              <Editor text={note.text} label="Note" onCancel={() => setEdited(undefined)} onSave={(changed) => {
                save(changed, note.id);
                setEdited(undefined);
              }} />
            ) : (
              <View style={[styles.note, { borderColor: colors.faint }]}>
                <Text style={text}>{note.text}</Text>
                <View style={styles.row}>
                  <Button title="Edit" onPress={() => setEdited(note.id)} />
                  <Button title="Delete" onPress={() => remove(note.id)} />
                </View>
              </View>
            ))} />
        </>
      )}
    </KeyboardAvoidingView>
  );
}

const styles = StyleSheet.create({
  page: { flex: 1, padding: 16, paddingTop: 64 },
  field: { borderWidth: 1, borderRadius: 8, padding: 10, marginVertical: 6 },
  row: { flexDirection: "row", gap: 12, marginVertical: 6 },
  note: { borderTopWidth: StyleSheet.hairlineWidth, paddingVertical: 10 },
});
